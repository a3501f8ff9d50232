//! Chapter "reduction operators": the ones that callers make.

use crate::abi::*;
use crate::collectives::invalid_type;
use crate::entry::{Failure, Outcome, non_null, write_out};
use crate::handle::check_known;
use oxccl_runtime::OpScalar;
use oxccl_types::{DataType, ResultCode};

pub unsafe fn red_op_create_pre_mul_sum(
    op: *mut ncclRedOp_t,
    scalar: *mut c_void,
    datatype: ncclDataType_t,
    residence: ncclScalarResidence_t,
    comm: ncclComm_t,
) -> Outcome {
    const NAME: &str = "ncclRedOpCreatePreMulSum";
    let communicator = check_known(NAME, comm)?;
    communicator.ensure_ready()?;
    non_null(NAME, "op", op)?;
    non_null(NAME, "scalar", scalar)?;
    let dtype = DataType::from_c(datatype);
    let (dtype, scalar) = match (residence, dtype) {
        (NCCL_SCALAR_HOST_IMMEDIATE, Some(dtype)) => {
            let mut bytes = [0; 8];
            // SAFETY: not null; the caller promises one element of `dtype`, which is at most 8 bytes.
            unsafe { std::ptr::copy_nonoverlapping(scalar.cast::<u8>(), bytes.as_mut_ptr(), dtype.size()) };
            (dtype, OpScalar::Host(bytes))
        }
        (NCCL_SCALAR_HOST_IMMEDIATE, None) => {
            let text = format!("{NAME} : invalid type {datatype}. Types are in 0..{}", DataType::ALL.len() - 1);
            return Err(Failure::new(ResultCode::InternalError, text));
        }
        (NCCL_SCALAR_DEVICE, Some(dtype)) => (dtype, OpScalar::Device(scalar.cast::<u8>().cast_const())),
        (NCCL_SCALAR_DEVICE, None) => return Err(invalid_type(NAME, datatype)),
        _ => {
            return Err(Failure::argument(format!(
                "{NAME} : invalid residence {residence}. It must be ncclScalarDevice (0) or ncclScalarHostImmediate (1)"
            )));
        }
    };
    // SAFETY: the C caller's promise.
    unsafe { write_out(NAME, "op", op, communicator.create_op(scalar, dtype)) }
}

pub unsafe fn red_op_destroy(op: ncclRedOp_t, comm: ncclComm_t) -> Outcome {
    const NAME: &str = "ncclRedOpDestroy";
    match op {
        0..=4 => return Err(Failure::argument(format!("{NAME} : operator is a NCCL builtin."))),
        ..0 => return Err(Failure::argument(format!("{NAME} : operator is garbage. ({op}; operators are >= 0)"))),
        _ if comm.is_null() => return Err(Failure::argument(format!("{NAME} : invalid communicator passed."))),
        _ => {}
    }
    let communicator = check_known(NAME, comm)?;
    communicator.destroy_op(op).map_err(|_| {
        Failure::argument(format!(
            "{NAME} : operator unknown to this communicator. ({op} was made on another one or destroyed before)"
        ))
    })
}
