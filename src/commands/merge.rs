//! `tenantry merge`: the shards of a sweep as if it had been run in one piece.

use std::sync::atomic::Ordering;

use crate::cli::{MergeArgs, OutputArgs};
use crate::commands::sweep::publish;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Started, check_folder};
use crate::sweep::saved::{Saved, Union};

pub fn run(args: &MergeArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    check_folder("--out", &args.out)?;
    // Once it writes, it writes to the end: what lay there is gone by then.
    let interrupt = interrupt::flag();
    let parts = args.folders.iter().map(|folder| Saved::open(folder));
    let union = Union::of(&parts.collect::<Result<Vec<_>, _>>()?)?;
    if interrupt.load(Ordering::Relaxed) {
        return Err(Failure::Interrupted("nothing was written".into()));
    }
    publish(&union.write(&args.out, &started, 0)?, &args.out, output)
}
