/* cuda_profiler_api.h - starts and stops a profiler: declared with the rest. */
#include "cuda_runtime.h"
