//! `tenantry cascade example`: two encoders, trained here.

use serde_json::json;
use tenantry_executor::cascade::{ExampleSize, make_example};

use super::{Unfinished, failure};
use crate::device::Device;
use tenantry::cli::{CascadeExampleArgs, OutputArgs};
use tenantry::failure::Failure;
use tenantry::interrupt;
use tenantry::output::{Started, print, say};

pub fn run(args: &CascadeExampleArgs, output: &OutputArgs) -> Result<(), Failure> {
    let started = Started::now();
    let device = Device::find(&args.device)?.torch();
    let interrupt = interrupt::flag();
    let unfinished = Unfinished::new(&args.out)?;
    let mut watch = |model: &str, epoch: u32, loss: f64| {
        let text = format!(
            "{model}: epoch {}, mean loss {loss:.3}, after {:.0} s",
            epoch + 1,
            started.wall_s()
        );
        say(output, &text);
    };
    let size = ExampleSize::full(args.levels);
    make_example(unfinished.path(), &size, args.seed, device, &interrupt, &mut watch).map_err(failure)?;
    unfinished.finish()?;
    let value = json!({ "folder": args.out, "wall_s": started.wall_s() });
    print(output, &value, || {
        let out = args.out.display();
        let models: Vec<String> = size.models.iter().map(|model| format!("{out}/{}", model.name)).collect();
        format!(
            "{} are trained; {out}/profile.csv and {out}/test.csv are items that they have not seen.\n\
             Next: tenantry cascade profile {} --items {out}/profile.csv --out {out}/profiled",
            models.join(", "),
            models.join(" ")
        )
    })
}
