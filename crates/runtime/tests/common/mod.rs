//! What tests with processes of their own share.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Ends the processes whatever happens.
pub struct Children(pub Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for c in &mut self.0 {
            let _ = c.kill();
            let _ = c.wait();
        }
    }
}

/// How a process ended; `None` when it has not ended `limit` after `start`.
pub fn wait(child: &mut Child, start: Instant, limit: Duration) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if start.elapsed() > limit {
            return None;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
