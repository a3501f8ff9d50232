//! The id by which the ranks of a communicator find each other, and its form as text.

use oxccl_types::{Error, Result};

/// The name of a communicator-to-be: one rank creates it, all ranks get it by a way of the program's own (a pipe, a
/// variable, a file) and join with it.
///
/// It holds the address of the rank that created it and a secret: who has it can join, so hand it only to ranks.
/// As text it is 256 hexadecimal digits. In the C interface: `ncclUniqueId`.
///
/// ```
/// # fn main() -> oxccl::Result<()> {
/// let id = oxccl::UniqueId::create()?;
/// let text = id.to_string();
/// assert_eq!(text.len(), 256);
/// assert_eq!(text.parse::<oxccl::UniqueId>()?, id);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// A new id, with this process as the meeting point (`ncclGetUniqueId`). The process must live until all ranks
    /// have joined.
    pub fn create() -> Result<UniqueId> {
        Ok(UniqueId(oxccl_runtime::UniqueId::create()?.to_bytes()))
    }

    /// The id with these bytes.
    pub fn from_bytes(bytes: [u8; 128]) -> UniqueId {
        UniqueId(bytes)
    }

    /// The bytes of the id.
    pub fn to_bytes(self) -> [u8; 128] {
        self.0
    }

    pub(crate) fn to_runtime(self) -> Result<oxccl_runtime::UniqueId> {
        oxccl_runtime::UniqueId::from_bytes(self.0)
    }
}

impl std::fmt::Display for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Shows no bytes, as they hold a secret.
impl std::fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("UniqueId(..)")
    }
}

impl std::str::FromStr for UniqueId {
    type Err = Error;

    fn from_str(text: &str) -> Result<UniqueId> {
        let text = text.trim().as_bytes();
        if text.len() != 256 {
            return Err(Error::argument(format!(
                "a unique id has 256 hexadecimal digits, this text has {}",
                text.len()
            )));
        }
        let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
        let mut bytes = [0; 128];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(Error::argument("a unique id consists of hexadecimal digits, this text has others")),
            };
        }
        Ok(UniqueId(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        let id = UniqueId(std::array::from_fn(|i| i as u8 ^ 0xa5));
        assert_eq!(id.to_string().parse::<UniqueId>().expect("its own text"), id);
        assert!("ab".parse::<UniqueId>().is_err());
        assert!("zz".repeat(128).parse::<UniqueId>().is_err());
    }
}
