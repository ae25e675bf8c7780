// What a build of torch for CPUs lacks for tensors that say they are on a CUDA device.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>

// Without a device guard no such tensor can be made. This one does nothing: operations run at
// once, so that there is nothing to wait for.
struct Guard : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  void record(void**, const c10::Stream&, const c10::DeviceIndex,
              const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
};
static Guard guard;
static c10::impl::DeviceGuardImplRegistrar registrar(c10::DeviceType::CUDA, &guard);

// Autograd asks these hooks for the stream on which to add gradients up.
struct Hooks : at::CUDAHooksInterface {
  bool isBuilt() const { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const { return false; }
};

// Torch keeps its hooks for good, so that others take their place through the table of
// virtual functions, the only content of such an object.
extern "C" void pretend_cuda(bool pretend) {
  static Hooks ours;
  static void* table_of_theirs = nullptr;
  void* theirs = const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks());
  if (!table_of_theirs) std::memcpy(&table_of_theirs, theirs, sizeof(void*));
  std::memcpy(theirs, pretend ? static_cast<void*>(&ours) : &table_of_theirs, sizeof(void*));
}
