"""
Bring questions with the same meaning together
==============================================

Where many texts ask the same thing in other words, the nearest neighbors of a text show its
meaning better than the text itself. :class:`~skcalib.NeighborSmoothing` moves each vector
toward its nearest neighbors. This does harm where similar texts must stay apart, as in graded
similarity (STS: pairs of sentences that people scored from 0 to 5).

The questions were written for this script.
"""

# %%
# The data are ten intents (what the customer wants), each in ten wordings.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.pipeline import make_pipeline

from skcalib import BertEncoder, NeighborSmoothing, Whitening
from skcalib.datasets import minilm_path
from skcalib.evaluation import evaluate_labelled

QUESTIONS = """
How do I reset my password? | I can't remember my password.
The login does not take my password | My account is locked after three tries
I need a new password, please | Where do I get back in? | You sent no link to set the password
It says wrong password, but it is right | Can you unlock my login?
Since yesterday I am locked out

How do I close my account? | I no longer want to be a customer. | Please delete all my data
What must I do to leave you? | I want to cancel the contract | Terminate my membership, please
Is there a fee for closing early? | My father died, who closes his account?
Where is the button to delete my profile? | I am moving to another bank

My parcel has not come. | Where is my order? | It was to be delivered last Monday
How long does shipping take? | The tracking number does not work
Has my order been sent at all? | The carrier says that you never handed it over
I have waited two weeks for my shoes | When will the delivery arrive?
Somebody else must have taken the parcel

I want my money back. | How do I return a jacket? | The lamp came broken, please refund me
When do I see the refund? | I sent the goods back ten days ago and nothing was repaid
Do you pay the return postage? | Can I return it without the box? | It does not fit, what now?
How many days do I have to send it back? | You refunded too little

Someone stole my card. | I lost my wallet with the card in it | Block my card at once!
There are payments that I did not make | Who do I call when the card is gone?
My card was copied at a machine | I found my card again, can you unblock it?
I left the card in a taxi | Freeze the card for a few days, please
A stranger used my card number

I have moved to another street. | How do I change my address?
You still write to my old house | My post code is wrong in your files
From May on I live in Leeds | Please update where I live | The letters go to my former flat
Can I enter two addresses? | I got married and moved in with him
Our office has a new location

Can I speak to a person? | Is there a phone number? | Your robot does not understand me
When is your hotline open? | Please call me back | I would like to talk with an adviser
Nobody answers the phone | Connect me with the staff | Do you have a branch where I can go?
I need a human, not a chat

What does the transfer abroad cost? | Do you take a fee for foreign money?
How much is a payment in dollars? | Why was I charged three euros in Poland?
Is paying with the card free on holiday? | Which rate do you use for the pound?
The exchange rate was worse than promised | Are there charges for cash in Japan?
I want to send francs to my sister | Does sending money to India cost extra?

My salary has not arrived. | A transfer is missing | When will the money be on my account?
I was sent 200 euros on Friday, where are they?
How long does a transfer take at the weekend? | The payment is shown as pending
My boss has paid, but I see nothing | The sum was sent twice and came never
Is my incoming payment held back? | Money does not show up

Can I get a higher limit? | How much may I withdraw in a day? | The machine gave me only 300
I want to spend more with my card | Raise my credit line, please
My limit is too low for the rent | Why was the large purchase declined?
Is there a maximum for payments? | Set my daily limit to a thousand
For my holiday I need a larger frame
"""
questions = [
    question
    for intent in QUESTIONS.strip().split("\n\n")
    for question in intent.replace("\n", " | ").split(" | ")
]
labels = np.repeat(np.arange(10), 10)

# %%
# The smoothing follows the whitening. It learns from vectors without labels; the labels here
# serve only for the scores. A text does not count among its own neighbors.

encoder = BertEncoder(minilm_path())
calibrated = make_pipeline(encoder, Whitening(noise="auto"))
smoothed = make_pipeline(encoder, Whitening(noise="auto"), NeighborSmoothing())
rows = {"raw": encoder, "calibrated": calibrated, "smoothed": smoothed}
print(evaluate_labelled(rows, questions, labels))

# %%
# The cosines show the effect: questions of one intent become similar, and questions of
# different intents stay apart.

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
for ax, (name, pipeline) in zip(axes, list(rows.items())[1:], strict=True):
    vectors = pipeline.fit_transform(questions)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    image = ax.imshow(unit @ unit.T, vmin=-0.2, vmax=1, cmap="viridis")
    clusters = KMeans(10, n_init=3, random_state=0).fit_predict(unit)
    nmi = 100 * normalized_mutual_info_score(labels, clusters)
    ax.set(title=f"{name}, k-means NMI {nmi:.0f}", xlabel="question")
axes[0].set_ylabel("question")
figure.colorbar(image, ax=axes, label="cosine")
figure.savefig("smoothing.png", dpi=150)

# %%
# Where smoothing does harm
# -------------------------
# Differences between the questions of one intent fade. A question about a lost card and one
# about a card that was found again become similar, though they need different answers.

some = [questions.index(q) for q in ("I lost my wallet with the card in it",
                                     "I found my card again, can you unblock it?")]  # fmt: skip
for name, pipeline in rows.items():
    lost, found = pipeline.fit_transform(questions)[some]
    cosine = lost @ found / np.linalg.norm(lost) / np.linalg.norm(found)
    print(f"{name:12}{cosine:.2f}")

# %%
# So the task decides. Search for the same topic, classes and clusters gain, and so does a
# search in which a query has several answers. Where each query has a single answer there is
# less to gain. Graded similarity loses 7 points (scores are times 100; `search
# <../tasks/search.html>`_).
