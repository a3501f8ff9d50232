//! Who made this processor.

use std::arch::x86_64::__cpuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Amd,
    Intel,
    Other,
}

pub(crate) fn vendor() -> Vendor {
    /// "AuthenticAMD", as three registers hold it.
    const AMD: [u32; 3] = [0x6874_7541, 0x6974_6e65, 0x444d_4163];
    /// "GenuineIntel".
    const INTEL: [u32; 3] = [0x756e_6547, 0x4965_6e69, 0x6c65_746e];
    let leaves = __cpuid(0);
    match [leaves.ebx, leaves.edx, leaves.ecx] {
        AMD => Vendor::Amd,
        INTEL => Vendor::Intel,
        _ => Vendor::Other,
    }
}
