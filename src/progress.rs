//! Progress on standard error, and only on a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar of `total` steps with the time left; silent where nobody watches.
pub fn bar(total: u64, what: &'static str, quiet: bool) -> ProgressBar {
    styled(total, what, quiet, "{prefix} {wide_bar} {pos}/{len}, {eta} left")
}

/// Counts steps of which nobody knows how many there will be; its message, if any, says what is done before the next.
pub fn counting(what: &'static str, quiet: bool) -> ProgressBar {
    let bar = styled(0, what, quiet, "{prefix}: {pos} runs, {elapsed}{msg}");
    bar.unset_length();
    bar
}

/// A bar of time, whose message says how much is left: what takes long is not how many steps there are.
pub fn timed(what: &'static str, quiet: bool) -> ProgressBar {
    styled(1, what, quiet, "{prefix} {wide_bar} {msg}")
}

fn styled(total: u64, what: &'static str, quiet: bool, template: &str) -> ProgressBar {
    if quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(template).expect("the template is valid");
    ProgressBar::new(total).with_style(style).with_prefix(what)
}
