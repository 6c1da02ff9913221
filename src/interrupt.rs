//! Ctrl-C sets a flag, so that what was finished can be saved. A second one ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What comes sooner after the first is the same: `timeout` signals a process, and then its group.
const AGAIN: Duration = Duration::from_millis(500);

/// The flag that Ctrl-C and SIGTERM set.
pub fn flag() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&flag);
    let first: Mutex<Option<Instant>> = Mutex::new(None);
    let handler = move || {
        let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
        match *first {
            None => {
                *first = Some(Instant::now());
                set.store(true, Ordering::Relaxed);
            }
            Some(at) if at.elapsed() < AGAIN => {}
            Some(_) => end_at_once(),
        }
    };
    // Only a second handler in one process can be refused, and each command installs one.
    ctrlc::set_handler(handler).expect("no other handler is installed");
    flag
}

/// As programs end by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Ends the process without what libraries do at its end: PyTorch's part of it crashes under lanes that still compute.
#[cfg(unix)]
fn end_at_once() -> ! {
    // SAFETY: nothing of this process runs after it.
    unsafe { libc::_exit(INTERRUPTED) }
}

#[cfg(not(unix))]
fn end_at_once() -> ! {
    std::process::exit(INTERRUPTED)
}
