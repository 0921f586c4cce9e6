#include "kernels/cuda/arena.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.h"

namespace winnow::kernels::cuda {
namespace {

// The driver's functions, looked up so that a program with this code starts on machines without a driver.
struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_address;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuGetErrorString) error_string;
};

template <class Function>
void look_up(const char* name, Function& function) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  constexpr unsigned kSince = 12000;  // CUDA 12.0
  check(cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result), name);
  if (found == nullptr) {
    throw Error(ErrorCode::kUnsupported,
                std::string("the GPU's driver is too old: it has no function ") + name);
  }
  function = reinterpret_cast<Function>(found);
}

const Driver& driver() {
  static const Driver functions = [] {
    check_available();
    check(cudaFree(nullptr), "starting the GPU");  // the driver's functions need a context
    Driver all{};
    look_up("cuMemGetAllocationGranularity", all.granularity);
    look_up("cuMemAddressReserve", all.reserve);
    look_up("cuMemAddressFree", all.free_address);
    look_up("cuMemCreate", all.create);
    look_up("cuMemRelease", all.release);
    look_up("cuMemMap", all.map);
    look_up("cuMemUnmap", all.unmap);
    look_up("cuMemSetAccess", all.set_access);
    look_up("cuGetErrorString", all.error_string);
    return all;
  }();
  return functions;
}

void check_driver(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) {
    return;
  }
  const char* reason = "unknown error";
  driver().error_string(result, &reason);
  throw Error(
      result == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kResourceExhausted : ErrorCode::kInternal,
      what + " failed on the GPU: " + reason);
}

constexpr CUmemLocation kDevice{.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};

CUmemAllocationProp properties() {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = kDevice;
  return wanted;
}

}  // namespace

Arena::Arena(size_t bytes) {
  const CUmemAllocationProp wanted = properties();
  check_driver(driver().granularity(&granule_, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
               "asking for the size of a granule");
  const size_t n_granules = bytes / granule_ + (bytes % granule_ != 0 ? 1 : 0);
  handles_.resize(n_granules);
  CUdeviceptr address = 0;
  check_driver(driver().reserve(&address, n_granules * granule_, 0, 0, 0),
               "reserving " + std::to_string(bytes) + " bytes of address space");
  address_ = address;
}

Arena::~Arena() {
  for (size_t i = 0; i < handles_.size(); ++i) {
    release(i);
  }
  driver().free_address(address_, handles_.size() * granule_);
}

std::byte* Arena::data() const {
  return reinterpret_cast<std::byte*>(address_);  // NOLINT(performance-no-int-to-ptr)
}

void Arena::release(size_t granule) {
  if (handles_[granule] != 0) {
    driver().unmap(address_ + granule * granule_, granule_);
    driver().release(handles_[granule]);
    handles_[granule] = 0;
    --n_committed_;
  }
}

void Arena::commit(size_t begin, size_t end) {
  WINNOW_CHECK(begin <= end && end <= handles_.size() * granule_);
  const CUmemAllocationProp wanted = properties();
  const CUmemAccessDesc access{.location = kDevice, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  std::vector<size_t> added;
  try {
    for (size_t i = begin / granule_; i * granule_ < end; ++i) {
      if (handles_[i] != 0) {
        continue;
      }
      CUmemGenericAllocationHandle handle = 0;
      check_driver(driver().create(&handle, granule_, &wanted, 0),
                   "taking " + std::to_string(granule_) + " bytes for the cache");
      const CUdeviceptr address = address_ + i * granule_;
      if (const CUresult result = driver().map(address, granule_, 0, handle, 0);
          result != CUDA_SUCCESS) {
        driver().release(handle);
        check_driver(result, "mapping memory");
      }
      handles_[i] = handle;
      ++n_committed_;
      added.push_back(i);
      check_driver(driver().set_access(address, granule_, &access, 1), "opening memory");
    }
  } catch (...) {
    for (const size_t i : added) {
      release(i);
    }
    throw;
  }
}

void Arena::give_back(size_t begin, size_t end) {
  WINNOW_CHECK(begin <= end && end <= handles_.size() * granule_);
  for (size_t i = (begin + granule_ - 1) / granule_; (i + 1) * granule_ <= end; ++i) {
    release(i);
  }
}

}  // namespace winnow::kernels::cuda
