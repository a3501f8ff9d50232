//! One error type: a result code of the C interface and a text for the person who reads it.

/// Result codes of `ncclResult_t` that stand for failures or for work in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum ResultCode {
    /// `ncclUnhandledCudaError`: the device failed.
    UnhandledDeviceError = 1,
    /// `ncclSystemError`: a system call failed.
    SystemError = 2,
    /// `ncclInternalError`: a defect of this library.
    InternalError = 3,
    /// `ncclInvalidArgument`: an argument is out of range.
    InvalidArgument = 4,
    /// `ncclInvalidUsage`: the call is not allowed here, or calls of ranks do not match.
    InvalidUsage = 5,
    /// `ncclRemoteError`: a peer died or the network failed.
    RemoteError = 6,
    /// `ncclInProgress`: not an error; ask again.
    InProgress = 7,
}

impl ResultCode {
    /// The code with the C value `v`, `None` for success and unknown values.
    pub fn from_c(v: i32) -> Option<ResultCode> {
        Some(match v {
            1 => ResultCode::UnhandledDeviceError,
            2 => ResultCode::SystemError,
            3 => ResultCode::InternalError,
            4 => ResultCode::InvalidArgument,
            5 => ResultCode::InvalidUsage,
            6 => ResultCode::RemoteError,
            7 => ResultCode::InProgress,
            _ => return None,
        })
    }

    /// The name of the Rust variant, for logs.
    pub const fn name(self) -> &'static str {
        match self {
            ResultCode::UnhandledDeviceError => "device error",
            ResultCode::SystemError => "system error",
            ResultCode::InternalError => "internal error",
            ResultCode::InvalidArgument => "invalid argument",
            ResultCode::InvalidUsage => "invalid usage",
            ResultCode::RemoteError => "remote error",
            ResultCode::InProgress => "in progress",
        }
    }
}

/// A failure: what kind, and a text that says what, where, which peer, the likely cause and the remedy.
///
/// One word, behind which its [`Failure`] lies: what every step of a call returns, which seldom fails, is handed on in registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(Box<Failure>);

/// What an [`Error`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code that the C interface returns.
    pub code: ResultCode,
    /// The text for people; `ncclGetLastError` returns it.
    pub text: String,
}

impl std::ops::Deref for Error {
    type Target = Failure;
    fn deref(&self) -> &Failure {
        &self.0
    }
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with `code` and `text`.
    #[cold]
    pub fn new(code: ResultCode, text: impl Into<String>) -> Error {
        Error(Box::new(Failure { code, text: text.into() }))
    }
    /// Its text.
    pub fn into_text(self) -> String {
        self.0.text
    }
    /// A system call failed.
    pub fn system(text: impl Into<String>) -> Error {
        Error::new(ResultCode::SystemError, text)
    }
    /// A defect of this library.
    pub fn internal(text: impl Into<String>) -> Error {
        Error::new(ResultCode::InternalError, text)
    }
    /// An argument is out of range.
    pub fn argument(text: impl Into<String>) -> Error {
        Error::new(ResultCode::InvalidArgument, text)
    }
    /// The call is not allowed here.
    pub fn usage(text: impl Into<String>) -> Error {
        Error::new(ResultCode::InvalidUsage, text)
    }
    /// A peer died or the network failed.
    pub fn remote(text: impl Into<String>) -> Error {
        Error::new(ResultCode::RemoteError, text)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.text)
    }
}

impl std::error::Error for Error {}
