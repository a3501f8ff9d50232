/* For programs that include RCCL's interface by NCCL's name. */
#include "rccl.h"
