// host_types.hpp - the types and names of CUDA's runtime API: errors, attributes, properties. What its functions do is in
// host_memory.hpp and host_api.hpp.
#pragma once
#include <stddef.h>

// What other headers ask for before they use this API.
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_H__
#define __CUDA_RUNTIME_API_H__
#define CUDART_VERSION 13000
#define CUDART_CB
#define CUDARTAPI
#define __CUDART_API_VERSION CUDART_VERSION

#define KM_EMU_ERRORS(X)                                                                     \
  X(cudaSuccess, 0, "no error")                                                              \
  X(cudaErrorInvalidValue, 1, "invalid argument")                                            \
  X(cudaErrorMemoryAllocation, 2, "out of memory")                                           \
  X(cudaErrorInitializationError, 3, "initialization error")                                 \
  X(cudaErrorCudartUnloading, 4, "driver shutting down")                                     \
  X(cudaErrorInvalidConfiguration, 9, "invalid configuration argument")                      \
  X(cudaErrorInvalidPitchValue, 12, "invalid pitch argument")                                \
  X(cudaErrorInvalidSymbol, 13, "invalid device symbol")                                     \
  X(cudaErrorInvalidHostPointer, 16, "invalid host pointer")                                 \
  X(cudaErrorInvalidDevicePointer, 17, "invalid device pointer")                             \
  X(cudaErrorInvalidTexture, 18, "invalid texture reference")                                \
  X(cudaErrorInvalidMemcpyDirection, 21, "invalid copy direction for memcpy")                \
  X(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version") \
  X(cudaErrorDevicesUnavailable, 46, "CUDA-capable device(s) is/are busy or unavailable")    \
  X(cudaErrorMissingConfiguration, 52, "__global__ function call is not configured")         \
  X(cudaErrorInvalidDeviceFunction, 98, "invalid device function")                           \
  X(cudaErrorNoDevice, 100, "no CUDA-capable device is detected")                            \
  X(cudaErrorInvalidDevice, 101, "invalid device ordinal")                                   \
  X(cudaErrorInvalidKernelImage, 200, "device kernel image is invalid")                      \
  X(cudaErrorNoKernelImageForDevice, 209, "no kernel image is available for execution on the device") \
  X(cudaErrorECCUncorrectable, 214, "uncorrectable ECC error encountered")                   \
  X(cudaErrorUnsupportedLimit, 215, "limit is not supported on this architecture")           \
  X(cudaErrorPeerAccessUnsupported, 217, "peer access is not supported between these two devices") \
  X(cudaErrorInvalidResourceHandle, 400, "invalid resource handle")                          \
  X(cudaErrorSymbolNotFound, 500, "named symbol not found")                                  \
  X(cudaErrorNotReady, 600, "device not ready")                                              \
  X(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered")                \
  X(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch")           \
  X(cudaErrorLaunchTimeout, 702, "the launch timed out and was terminated")                  \
  X(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")                \
  X(cudaErrorPeerAccessNotEnabled, 705, "peer access has not been enabled")                  \
  X(cudaErrorAssert, 710, "device-side assert triggered")                                    \
  X(cudaErrorHostMemoryAlreadyRegistered, 712, "part or all of the requested memory range is already mapped") \
  X(cudaErrorHostMemoryNotRegistered, 713, "pointer does not correspond to a registered memory region") \
  X(cudaErrorIllegalInstruction, 715, "an illegal instruction was encountered")              \
  X(cudaErrorMisalignedAddress, 716, "misaligned address")                                   \
  X(cudaErrorLaunchFailure, 719, "unspecified launch failure")                               \
  X(cudaErrorCooperativeLaunchTooLarge, 720, "too many blocks in cooperative launch")        \
  X(cudaErrorNotPermitted, 800, "operation not permitted")                                   \
  X(cudaErrorNotSupported, 801, "operation not supported")                                   \
  X(cudaErrorUnknown, 999, "unknown error")
#define KM_EMU_NAMED(name, number, text) name = number,
enum cudaError {
  KM_EMU_ERRORS(KM_EMU_NAMED)
  // What programs have in tables of names, and nothing here returns.
  cudaErrorProfilerDisabled = 5, cudaErrorProfilerNotInitialized = 6, cudaErrorProfilerAlreadyStarted = 7,
  cudaErrorProfilerAlreadyStopped = 8, cudaErrorInvalidTextureBinding = 19, cudaErrorInvalidChannelDescriptor = 20,
  cudaErrorAddressOfConstant = 22, cudaErrorTextureFetchFailed = 23, cudaErrorTextureNotBound = 24,
  cudaErrorSynchronizationError = 25, cudaErrorInvalidFilterSetting = 26, cudaErrorInvalidNormSetting = 27,
  cudaErrorMixedDeviceExecution = 28, cudaErrorNotYetImplemented = 31, cudaErrorMemoryValueTooLarge = 32,
  cudaErrorStubLibrary = 34, cudaErrorCallRequiresNewerDriver = 36, cudaErrorInvalidSurface = 37,
  cudaErrorDuplicateVariableName = 43, cudaErrorDuplicateTextureName = 44, cudaErrorDuplicateSurfaceName = 45,
  cudaErrorIncompatibleDriverContext = 49, cudaErrorPriorLaunchFailure = 53, cudaErrorLaunchMaxDepthExceeded = 65,
  cudaErrorLaunchFileScopedTex = 66, cudaErrorLaunchFileScopedSurf = 67, cudaErrorSyncDepthExceeded = 68,
  cudaErrorLaunchPendingCountExceeded = 69, cudaErrorDeviceNotLicensed = 102, cudaErrorStartupFailure = 127,
  cudaErrorDeviceUninitialized = 201, cudaErrorMapBufferObjectFailed = 205, cudaErrorUnmapBufferObjectFailed = 206,
  cudaErrorArrayIsMapped = 207, cudaErrorAlreadyMapped = 208, cudaErrorAlreadyAcquired = 210, cudaErrorNotMapped = 211,
  cudaErrorNotMappedAsArray = 212, cudaErrorNotMappedAsPointer = 213, cudaErrorDeviceAlreadyInUse = 216,
  cudaErrorInvalidPtx = 218, cudaErrorInvalidGraphicsContext = 219, cudaErrorNvlinkUncorrectable = 220,
  cudaErrorJitCompilerNotFound = 221, cudaErrorUnsupportedPtxVersion = 222, cudaErrorInvalidSource = 300,
  cudaErrorFileNotFound = 301, cudaErrorSharedObjectSymbolNotFound = 302, cudaErrorSharedObjectInitFailed = 303,
  cudaErrorOperatingSystem = 304, cudaErrorIllegalState = 401, cudaErrorLaunchIncompatibleTexturing = 703,
  cudaErrorSetOnActiveProcess = 708, cudaErrorContextIsDestroyed = 709, cudaErrorTooManyPeers = 711,
  cudaErrorHardwareStackError = 714, cudaErrorInvalidAddressSpace = 717, cudaErrorInvalidPc = 718,
  cudaErrorSystemNotReady = 802, cudaErrorSystemDriverMismatch = 803, cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901, cudaErrorTimeout = 909, cudaErrorApiFailureBase = 10000
};
#undef KM_EMU_NAMED
typedef cudaError cudaError_t;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUmemPoolHandle_st* cudaMemPool_t;
struct CUevent_st { long long nanoseconds; };
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
#define KM_EMU_FLAG constexpr unsigned
KM_EMU_FLAG cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
KM_EMU_FLAG cudaEventDefault = 0, cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaEventInterprocess = 4;
KM_EMU_FLAG cudaEventRecordDefault = 0, cudaEventRecordExternal = 1, cudaEventWaitDefault = 0, cudaEventWaitExternal = 1;
KM_EMU_FLAG cudaHostAllocDefault = 0, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostAllocWriteCombined = 4;
KM_EMU_FLAG cudaHostRegisterDefault = 0, cudaHostRegisterPortable = 1, cudaHostRegisterMapped = 2;
KM_EMU_FLAG cudaHostRegisterIoMemory = 4, cudaHostRegisterReadOnly = 8, cudaPeerAccessDefault = 0;
KM_EMU_FLAG cudaDeviceScheduleAuto = 0, cudaDeviceScheduleSpin = 1, cudaDeviceScheduleYield = 2;
KM_EMU_FLAG cudaDeviceScheduleBlockingSync = 4, cudaDeviceBlockingSync = 4, cudaDeviceMapHost = 8;
KM_EMU_FLAG cudaDeviceLmemResizeToMax = 16, cudaOccupancyDefault = 0, cudaOccupancyDisableCachingOverride = 1;
KM_EMU_FLAG cudaMemAttachGlobal = 1, cudaMemAttachHost = 2, cudaMemAttachSingle = 4;
#undef KM_EMU_FLAG
constexpr int cudaCpuDeviceId = -1, cudaInvalidDeviceId = -2;

enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeClusterDimMustBeSet = 10,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14,
};
enum cudaFuncCache { cudaFuncCachePreferNone, cudaFuncCachePreferShared, cudaFuncCachePreferL1, cudaFuncCachePreferEqual };
enum cudaSharedMemConfig { cudaSharedMemBankSizeDefault, cudaSharedMemBankSizeFourByte, cudaSharedMemBankSizeEightByte };
enum cudaSharedCarveout {
  cudaSharedmemCarveoutDefault = -1,
  cudaSharedmemCarveoutMaxL1 = 0,
  cudaSharedmemCarveoutMaxShared = 100,
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered,
  cudaMemoryTypeHost,
  cudaMemoryTypeDevice,
  cudaMemoryTypeManaged,
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
enum cudaMemoryAdvise {
  cudaMemAdviseSetReadMostly = 1,
  cudaMemAdviseUnsetReadMostly,
  cudaMemAdviseSetPreferredLocation,
  cudaMemAdviseUnsetPreferredLocation,
  cudaMemAdviseSetAccessedBy,
  cudaMemAdviseUnsetAccessedBy,
};
enum cudaMemLocationType {
  cudaMemLocationTypeInvalid,
  cudaMemLocationTypeDevice,
  cudaMemLocationTypeHost,
  cudaMemLocationTypeHostNuma,
  cudaMemLocationTypeHostNumaCurrent,
};
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
enum cudaMemPoolAttr {
  cudaMemPoolReuseFollowEventDependencies = 1,
  cudaMemPoolReuseAllowOpportunistic,
  cudaMemPoolReuseAllowInternalDependencies,
  cudaMemPoolAttrReleaseThreshold,
  cudaMemPoolAttrReservedMemCurrent,
  cudaMemPoolAttrReservedMemHigh,
  cudaMemPoolAttrUsedMemCurrent,
  cudaMemPoolAttrUsedMemHigh,
};
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid, cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone, cudaMemHandleTypePosixFileDescriptor };
enum cudaMemAccessFlags { cudaMemAccessFlagsProtNone, cudaMemAccessFlagsProtRead, cudaMemAccessFlagsProtReadWrite = 3 };
struct cudaMemPoolProps {
  cudaMemAllocationType allocType;
  cudaMemAllocationHandleType handleTypes;
  cudaMemLocation location;
  void* win32SecurityAttributes;
  size_t maxSize;
  unsigned short usage;
  unsigned char reserved[54];
};
struct cudaMemAccessDesc {
  cudaMemLocation location;
  cudaMemAccessFlags flags;
};
enum cudaLimit {
  cudaLimitStackSize,
  cudaLimitPrintfFifoSize,
  cudaLimitMallocHeapSize,
  cudaLimitDevRuntimeSyncDepth,
  cudaLimitDevRuntimePendingLaunchCount,
  cudaLimitMaxL2FetchGranularity,
  cudaLimitPersistingL2CacheSize,
};
enum cudaComputeMode {
  cudaComputeModeDefault,
  cudaComputeModeExclusive,
  cudaComputeModeProhibited,
  cudaComputeModeExclusiveProcess,
};
enum cudaDeviceP2PAttr {
  cudaDevP2PAttrPerformanceRank = 1,
  cudaDevP2PAttrAccessSupported,
  cudaDevP2PAttrNativeAtomicSupported,
  cudaDevP2PAttrCudaArrayAccessSupported,
};

// Pitched memory.
struct cudaExtent { size_t width, height, depth; };
struct cudaPos { size_t x, y, z; };
struct cudaPitchedPtr {
  void* ptr;
  size_t pitch, xsize, ysize;
};
struct cudaMemcpy3DParms {
  void* srcArray;
  cudaPos srcPos;
  cudaPitchedPtr srcPtr;
  void* dstArray;
  cudaPos dstPos;
  cudaPitchedPtr dstPtr;
  cudaExtent extent;
  cudaMemcpyKind kind;
};
inline cudaExtent make_cudaExtent(size_t w, size_t h, size_t d) { return {w, h, d}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }
inline cudaPitchedPtr make_cudaPitchedPtr(void* at, size_t pitch, size_t xsize, size_t ysize) {
  return {at, pitch, xsize, ysize};
}

struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes, preferredShmemCarveout;
};
struct cudaUUID_t { char bytes[16]; };

// The properties of CUDA 13, and those that it dropped.
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem, sharedMemPerBlock, memPitch, totalConstMem, textureAlignment, texturePitchAlignment, surfaceAlignment;
  size_t sharedMemPerMultiprocessor, sharedMemPerBlockOptin, reservedSharedMemPerBlock;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], major, minor, multiProcessorCount;
  int integrated, canMapHostMemory, concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver;
  int asyncEngineCount, unifiedAddressing, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize;
  int maxThreadsPerMultiProcessor, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported;
  int pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem;
  int cooperativeLaunch, pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor;
  int accessPolicyMaxWindowSize, hostRegisterSupported, memoryPoolsSupported, clusterLaunch, unifiedFunctionPointers;
  int maxTexture1D, maxTexture2D[2], maxTexture3D[3], maxTexture1DLayered[2], maxTexture2DLayered[3];
  int maxTexture1DLinear, maxTexture2DLinear[3], maxTextureCubemap, maxSurface1D, maxSurface2D[2], maxSurface3D[3];
  int clockRate, memoryClockRate, deviceOverlap, kernelExecTimeoutEnabled, computeMode, singleToDoublePrecisionPerfRatio;
  int cooperativeMultiDeviceLaunch;
};

// The attributes that are read from a property: name, number, property.
#define KM_EMU_ATTRIBUTES(X)                                                      \
  X(MaxThreadsPerBlock, 1, maxThreadsPerBlock)                                    \
  X(MaxBlockDimX, 2, maxThreadsDim[0])                                            \
  X(MaxBlockDimY, 3, maxThreadsDim[1])                                            \
  X(MaxBlockDimZ, 4, maxThreadsDim[2])                                            \
  X(MaxGridDimX, 5, maxGridSize[0])                                               \
  X(MaxGridDimY, 6, maxGridSize[1])                                               \
  X(MaxGridDimZ, 7, maxGridSize[2])                                               \
  X(MaxSharedMemoryPerBlock, 8, sharedMemPerBlock)                                \
  X(TotalConstantMemory, 9, totalConstMem)                                        \
  X(WarpSize, 10, warpSize)                                                       \
  X(MaxPitch, 11, memPitch)                                                       \
  X(MaxRegistersPerBlock, 12, regsPerBlock)                                       \
  X(ClockRate, 13, clockRate)                                                     \
  X(TextureAlignment, 14, textureAlignment)                                       \
  X(GpuOverlap, 15, deviceOverlap)                                                \
  X(MultiProcessorCount, 16, multiProcessorCount)                                 \
  X(KernelExecTimeout, 17, kernelExecTimeoutEnabled)                              \
  X(Integrated, 18, integrated)                                                   \
  X(CanMapHostMemory, 19, canMapHostMemory)                                       \
  X(ComputeMode, 20, computeMode)                                                 \
  X(ConcurrentKernels, 31, concurrentKernels)                                     \
  X(EccEnabled, 32, ECCEnabled)                                                   \
  X(PciBusId, 33, pciBusID)                                                       \
  X(PciDeviceId, 34, pciDeviceID)                                                 \
  X(TccDriver, 35, tccDriver)                                                     \
  X(MemoryClockRate, 36, memoryClockRate)                                         \
  X(GlobalMemoryBusWidth, 37, memoryBusWidth)                                     \
  X(L2CacheSize, 38, l2CacheSize)                                                 \
  X(MaxThreadsPerMultiProcessor, 39, maxThreadsPerMultiProcessor)                 \
  X(AsyncEngineCount, 40, asyncEngineCount)                                       \
  X(UnifiedAddressing, 41, unifiedAddressing)                                     \
  X(PciDomainId, 50, pciDomainID)                                                 \
  X(ComputeCapabilityMajor, 75, major)                                            \
  X(ComputeCapabilityMinor, 76, minor)                                            \
  X(StreamPrioritiesSupported, 78, streamPrioritiesSupported)                     \
  X(GlobalL1CacheSupported, 79, globalL1CacheSupported)                           \
  X(LocalL1CacheSupported, 80, localL1CacheSupported)                             \
  X(MaxSharedMemoryPerMultiprocessor, 81, sharedMemPerMultiprocessor)             \
  X(MaxRegistersPerMultiprocessor, 82, regsPerMultiprocessor)                     \
  X(ManagedMemory, 83, managedMemory)                                             \
  X(IsMultiGpuBoard, 84, isMultiGpuBoard)                                         \
  X(HostNativeAtomicSupported, 86, hostNativeAtomicSupported)                     \
  X(SingleToDoublePrecisionPerfRatio, 87, singleToDoublePrecisionPerfRatio)       \
  X(PageableMemoryAccess, 88, pageableMemoryAccess)                               \
  X(ConcurrentManagedAccess, 89, concurrentManagedAccess)                         \
  X(ComputePreemptionSupported, 90, computePreemptionSupported)                   \
  X(CanUseHostPointerForRegisteredMem, 91, canUseHostPointerForRegisteredMem)     \
  X(CooperativeLaunch, 95, cooperativeLaunch)                                     \
  X(CooperativeMultiDeviceLaunch, 96, cooperativeMultiDeviceLaunch)               \
  X(MaxSharedMemoryPerBlockOptin, 97, sharedMemPerBlockOptin)                     \
  X(HostRegisterSupported, 99, hostRegisterSupported)                             \
  X(MaxBlocksPerMultiprocessor, 106, maxBlocksPerMultiProcessor)                  \
  X(MaxPersistingL2CacheSize, 108, persistingL2CacheMaxSize)                      \
  X(MaxAccessPolicyWindowSize, 109, accessPolicyMaxWindowSize)                    \
  X(ReservedSharedMemoryPerBlock, 111, reservedSharedMemPerBlock)                 \
  X(MemoryPoolsSupported, 115, memoryPoolsSupported)                              \
  X(ClusterLaunch, 120, clusterLaunch)
#define KM_EMU_NAMED(name, number, property) cudaDevAttr##name = number,
enum cudaDeviceAttr { KM_EMU_ATTRIBUTES(KM_EMU_NAMED) cudaDevAttrMemoryPoolSupportedHandleTypes = 119 };
#undef KM_EMU_NAMED

// Launches with attributes, `cudaLaunchKernelEx`.
enum cudaAccessProperty { cudaAccessPropertyNormal, cudaAccessPropertyStreaming, cudaAccessPropertyPersisting };
struct cudaAccessPolicyWindow {
  void* base_ptr;
  size_t num_bytes;
  float hitRatio;
  cudaAccessProperty hitProp, missProp;
};
enum cudaLaunchAttributeID {
  cudaLaunchAttributeIgnore,
  cudaLaunchAttributeAccessPolicyWindow,
  cudaLaunchAttributeCooperative,
  cudaLaunchAttributeSynchronizationPolicy,
  cudaLaunchAttributeClusterDimension,
  cudaLaunchAttributeClusterSchedulingPolicyPreference,
  cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributeProgrammaticEvent,
  cudaLaunchAttributePriority,
};
union cudaLaunchAttributeValue {
  char pad[64];
  cudaAccessPolicyWindow accessPolicyWindow;
  int cooperative, programmaticStreamSerializationAllowed, priority;
  struct { unsigned x, y, z; } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
typedef cudaLaunchAttributeID cudaStreamAttrID;
typedef cudaLaunchAttributeValue cudaStreamAttrValue;
#define cudaStreamAttributeAccessPolicyWindow cudaLaunchAttributeAccessPolicyWindow
#define cudaStreamAttributePriority cudaLaunchAttributePriority
#define cudaStreamAttributeSynchronizationPolicy cudaLaunchAttributeSynchronizationPolicy
