/* hip_runtime_api.h - the same as hip_runtime.h. */
#include "hip_runtime.h"
