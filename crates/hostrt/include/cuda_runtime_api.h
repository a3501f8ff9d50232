/* cuda_runtime_api.h - the same as cuda_runtime.h. */
#include "cuda_runtime.h"
