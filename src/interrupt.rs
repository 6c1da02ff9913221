//! Ctrl-C sets a flag, so that what was finished can be saved. A second one ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The flag that Ctrl-C and SIGTERM set.
pub fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let handler = move || {
        if set.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    };
    // Only a second handler in one process can be refused, and each command installs one.
    ctrlc::set_handler(handler).expect("no other handler is installed");
    flag
}
