//! Progress on standard error, and only on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `total` steps with the time left; silent where nobody watches.
pub fn bar(total: u64, what: &'static str, quiet: bool) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    }
    let style =
        ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left").expect("the template is valid");
    ProgressBar::new(total).with_style(style).with_message(what)
}
