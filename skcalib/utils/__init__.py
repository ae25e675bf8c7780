"""What every other package uses: input, texts, labels, threads, devices, private names."""
