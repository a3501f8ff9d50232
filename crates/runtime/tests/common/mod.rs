//! What tests with processes of their own share.

use std::process::Child;

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
