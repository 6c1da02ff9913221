//! `tenantry merge`: the shards of a sweep as if it had been run in one piece.

use crate::cli::{MergeArgs, OutputArgs};
use crate::commands::sweep::publish;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{Started, check_folder};
use crate::sweep::saved::{Saved, Union};

pub fn run(args: &MergeArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    check_folder("--out", &args.out)?;
    let interrupt = interrupt::flag();
    let parts = args.folders.iter().map(|folder| Saved::open(folder));
    let union = Union::of(&parts.collect::<Result<Vec<_>, _>>()?)?;
    publish(&union.write(&args.out, &started, 0, &interrupt)?, &args.out, output)
}
