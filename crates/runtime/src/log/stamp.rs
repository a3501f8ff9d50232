//! The time in front of a line of the log: `NCCL_DEBUG_TIMESTAMP_LEVELS` and `NCCL_DEBUG_TIMESTAMP_FORMAT`.

use std::time::Duration;

use super::{Flavour, Level, listed};

/// What the user gets who asks for nothing.
const FORMAT: &str = "[%F %T] ";
/// Longest format, bytes.
const LONGEST: usize = 255;

/// Which lines have the time in front, and how it is written.
#[derive(Debug)]
pub(super) struct Stamps {
    /// A bit per level.
    levels: u64,
    format: String,
}

impl Stamps {
    /// None at all.
    pub(super) const NONE: Stamps = Stamps { levels: 0, format: String::new() };

    /// As the two variables say; `None` where they are unset.
    pub(super) fn parse(levels: Option<&str>, format: Option<&str>, flavour: Flavour) -> Stamps {
        let format = format.filter(|f| f.len() <= LONGEST).unwrap_or(FORMAT);
        Stamps { levels: levels.map_or(bit(Level::Warn), |text| parse_levels(text, flavour)), format: format.into() }
    }

    /// What stands in front of a line of `level` that is written `now` (since 1970 began); empty where nothing does.
    pub(super) fn text(&self, level: Level, now: Duration) -> String {
        if self.levels & bit(level) == 0 || self.format.is_empty() {
            return String::new();
        }
        let format = with_fraction(&self.format, now.subsec_nanos()).replace('_', " ");
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        oxccl_sys::host::local_time(seconds, &format).unwrap_or_default()
    }
}

fn bit(level: Level) -> u64 {
    1 << level as u8
}

/// The levels of a list.
fn parse_levels(text: &str, flavour: Flavour) -> u64 {
    listed(text, |name| match name {
        "VERSION" => bit(Level::Version),
        "WARN" => bit(Level::Warn),
        "INFO" => bit(Level::Info),
        "ABORT" => bit(Level::Abort),
        "TRACE" => bit(Level::Trace),
        "ERROR" if flavour == Flavour::Rccl => bit(Level::Error),
        _ => 0,
    })
}

/// `format` with the first `%1f` to `%9f` replaced by that many digits of the fraction of a second, cut and not rounded.
fn with_fraction(format: &str, nanos: u32) -> String {
    let bytes = format.as_bytes();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= 2) {
        match *rest {
            [b'%', digits @ b'1'..=b'9', b'f', ..] => {
                let digits = usize::from(digits - b'0');
                return format!("{}{}{}", &format[..at], &format!("{nanos:09}")[..digits], &format[at + 3..]);
            }
            // Also of `%%`, whose second sign begins nothing.
            [b'%', ..] => at += 2,
            _ => at += 1,
        }
    }
    format.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_fraction_is_replaced() {
        let of = |format| with_fraction(format, 12_345_678);
        assert_eq!(of("[%T.%3f] %2f"), "[%T.012] %2f");
        assert_eq!(of("%9f"), "012345678");
        assert_eq!(of("%%3f %1f"), "%%3f 0");
        assert_eq!(of("%%%4f"), "%%0123");
        for same in ["", "%", "%3", "%0f", "%f", "3f", "é%"] {
            assert_eq!(of(same), same);
        }
        assert_eq!(of("é%6fé"), "é012345é");
    }

    #[test]
    fn levels_are_chosen() {
        let of = |levels, flavour| Stamps::parse(levels, None, flavour).levels;
        assert_eq!(of(None, Flavour::Nccl), bit(Level::Warn));
        assert_eq!(of(Some("info,Version,x"), Flavour::Nccl), bit(Level::Info) | bit(Level::Version));
        assert_eq!(of(Some("^WARN"), Flavour::Nccl), !bit(Level::Warn));
        assert_eq!((of(Some("ALL"), Flavour::Nccl), of(Some("^ALL"), Flavour::Nccl)), (u64::MAX, 0));
        assert_eq!(of(Some("error"), Flavour::Nccl), 0);
        assert_eq!(of(Some("error"), Flavour::Rccl), bit(Level::Error));
        assert_eq!(of(Some(""), Flavour::Nccl), 0);
    }

    #[test]
    fn times_are_written_as_the_format_says() {
        let now = Duration::new(1_800_000_000, 123_000_000);
        let of = |format| Stamps::parse(None, format, Flavour::Nccl).text(Level::Warn, now);
        assert_eq!(of(Some("%s_%2f_")), "1800000000 12 ");
        assert_eq!(of(Some("")), "");
        let usual = of(None);
        let digits = |range: std::ops::Range<usize>| usual[range].bytes().all(|b| b.is_ascii_digit());
        assert!(
            usual.len() == 22 && usual.starts_with("[2027-01-1") && usual.ends_with("] ") && digits(12..14),
            "{usual}"
        );
        assert_eq!(of(Some(&"x".repeat(256))), usual, "too long a format");
        assert_eq!(Stamps::parse(None, None, Flavour::Nccl).text(Level::Info, now), "");
    }
}
