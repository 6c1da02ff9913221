//! `tenantry cascade profile`: the offline pass over models.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tenantry_cascade::Temperature;
use tenantry_core::answers::described;
use tenantry_executor::ExecutorError;
use tenantry_executor::cascade::{
    Answer, Calibration, CalibrationMethod, Fitted, Outputs, PassHeard, ProfileItems, ProfileRoute, Profiled,
    TextModel, profile,
};
use tenantry_profiles::did_you_mean;

use super::{Asked, Unfinished, failure, median, profiled_in, table};
use tenantry::cli::{CalibrationName, CascadeProfileArgs, OutputArgs, RouteArg};
use tenantry::failure::Failure;
use tenantry::interrupt;
use tenantry::output::{print, say};

/// How far off a regression's right answer may be where nobody says.
const TOLERANCE: f64 = 0.5;

pub fn run(args: &CascadeProfileArgs, output: &OutputArgs) -> Result<(), Failure> {
    if let Some(got) = args.tolerance.filter(|got| *got <= 0.0) {
        return Err(Failure::BadInput(format!("--tolerance: must be above 0, got {got}")));
    }
    let interrupt = interrupt::flag();
    // Without a slash or a dot at its end.
    let out: PathBuf = args.out.components().collect();
    let unfinished = Unfinished::new(&out)?;
    let Asked {
        models,
        items,
        items_hash,
    } = Asked::read(&args.models)?;
    check_fitted(args, models[0].answer())?;
    let (partial, kept) = Partial::of(&out, &identity(args, &models, &items_hash))?;
    if !kept.is_empty() {
        say(output, &format!("going on with {}", partial.folder.display()));
    }
    let method = match args.calibration {
        None | Some(CalibrationName::Temperature) => CalibrationMethod::Temperature,
        Some(CalibrationName::Dirichlet) => CalibrationMethod::Dirichlet,
    };
    let heard = PassHeard {
        begins: &mut |model, steps| match steps {
            [] => say(output, &format!("{model}: {} items", items.len())),
            steps => say(output, &format!("{model}: items pruned by {}", described(steps))),
        },
        ends: &mut |outputs| partial.keep(outputs),
        fits: &mut |model| {
            // All others are fitted in a moment.
            if method == CalibrationMethod::Dirichlet {
                say(output, &format!("{model}: fitting weights between its classes"));
            }
        },
    };
    let routes = routes(args, &models)?;
    let fitted = |folder| calibrations(folder, &models);
    let calibrations = args.calibrated_by.as_deref().map(fitted).transpose()?;
    let asked = ProfileItems {
        items: &items,
        method,
        path: &args.models.items,
        hash: &items_hash,
        tolerance: args.tolerance.unwrap_or(TOLERANCE),
        calibrations: calibrations.as_ref(),
        routes: &routes,
        kept: &kept,
    };
    let profiled = profile(&models, asked, &interrupt, heard).map_err(|error| match error {
        ExecutorError::Interrupted if partial.folder.exists() => Failure::Interrupted(format!(
            "{} keeps what was finished, and the same command goes on with it",
            partial.folder.display()
        )),
        error => failure(error),
    })?;
    let all: Vec<&Outputs> =
        profiled.iter().flat_map(|model| std::iter::once(&model.whole).chain(&model.pruned)).collect();
    for outputs in &all {
        outputs.write(&unfinished.path().join(outputs.file_name())).map_err(failure)?;
    }
    unfinished.finish()?;
    partial.remove()?;
    if calibrations.is_none() {
        for Profiled { whole, .. } in &profiled {
            for note in of_calibration(&whole.calibration) {
                say(output, &format!("note: {}: {note}", whole.model));
            }
        }
    }
    let passes = profiled
        .iter()
        .map(|model| (model.whole.model.as_str(), median(&model.whole.observed.service_us)))
        .collect::<Vec<(&str, f32)>>();
    if let Some(note) = not_the_fastest_first(&passes) {
        say(output, &note);
    }
    let rows: Vec<Value> = all.iter().copied().map(row).collect();
    print(output, &json!({ "folder": args.out, "outputs": rows }), || {
        format!("{}\n\n{} has the outputs.", text(&rows), args.out.display())
    })
}

/// That what is said of the fit is of models that answer so.
fn check_fitted(args: &CascadeProfileArgs, answer: &Answer) -> Result<(), Failure> {
    let message = match answer {
        Answer::Number if args.calibration.is_some() => {
            "--calibration: must be of models that answer classes, got a regression, whose spread is fitted".to_owned()
        }
        Answer::Class(_) if args.tolerance.is_some() => {
            format!("--tolerance: must be of a regression, whose answers are numbers, got the classes {answer}")
        }
        Answer::Number | Answer::Class(_) => return Ok(()),
    };
    Err(Failure::BadInput(message))
}

/// What `--route` says, of these models.
fn routes(args: &CascadeProfileArgs, models: &[TextModel]) -> Result<Vec<ProfileRoute>, Failure> {
    let known: Vec<&str> = models.iter().map(TextModel::name).collect();
    for (name, _) in args.routes.iter().flat_map(|route| &route.0) {
        if !known.contains(&name.as_str()) {
            return Err(Failure::BadInput(format!(
                "--route: must be of the models {}, got {name}{}",
                known.join(", "),
                did_you_mean(name, known.iter().copied())
            )));
        }
    }
    let route = |RouteArg(levels): &RouteArg| ProfileRoute { levels: levels.clone() };
    Ok(args.routes.iter().map(route).collect())
}

/// What decides which outputs passes come to.
fn identity(args: &CascadeProfileArgs, models: &[TextModel], items_hash: &str) -> String {
    let models = models.iter().map(|model| format!("{} {}", model.name(), model.hash()));
    let lines = [format!("device {}", args.models.device), format!("items {items_hash}")];
    lines.into_iter().chain(models).collect::<Vec<_>>().join("\n")
}

/// The folder beside the one that is written, for outputs that an interrupted run has finished.
struct Partial {
    folder: PathBuf,
    /// The content of [`OF`].
    identity: String,
}

/// Says that the folder is an interrupted run's, and of what.
const OF: &str = "unfinished-profile-of";

impl Partial {
    /// With the outputs that an interrupted run of the same models and items left; none where there was none.
    fn of(out: &Path, identity: &str) -> Result<(Partial, Vec<Outputs>), Failure> {
        let mut folder = out.as_os_str().to_owned();
        folder.push(".partial");
        let partial = Partial {
            folder: folder.into(),
            identity: identity.to_owned(),
        };
        if !partial.folder.exists() {
            return Ok((partial, Vec::new()));
        }
        let folder = partial.folder.display();
        let of = std::fs::read_to_string(partial.folder.join(OF)).unwrap_or_default();
        if of != identity {
            return Err(Failure::BadInput(format!(
                "{folder}: must be what an interrupted run left of these models and items on this device, or removed, \
                 got something else"
            )));
        }
        let failed = |error: io::Error| Failure::Running(format!("{folder}: {error}"));
        let entries = partial.folder.read_dir().map_err(failed)?;
        let paths = entries.map(|entry| Ok(entry?.path()));
        let paths: Vec<PathBuf> = paths.collect::<Result<_, _>>().map_err(failed)?;
        let outputs = paths.iter().filter(|path| path.extension().is_some_and(|end| end == "safetensors"));
        let kept = outputs.map(|path| Outputs::read(path).map_err(Failure::bad_input));
        let kept = kept.collect::<Result<_, _>>()?;
        Ok((partial, kept))
    }

    fn keep(&self, outputs: &Outputs) -> Result<(), ExecutorError> {
        let failed = |source| ExecutorError::File {
            path: self.folder.clone(),
            source,
        };
        if !self.folder.exists() {
            std::fs::create_dir(&self.folder).map_err(failed)?;
            std::fs::write(self.folder.join(OF), &self.identity).map_err(failed)?;
        }
        outputs.write(&self.folder.join(outputs.file_name()))
    }

    /// It is this command's own.
    fn remove(&self) -> Result<(), Failure> {
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::Running(format!(
                "{}: must be removable: {error}",
                self.folder.display()
            ))),
            _ => Ok(()),
        }
    }
}

/// That confidences are by a temperature that was not asked for, or were fitted to items that do not tell how sure a
/// model may be.
fn of_calibration(calibration: &Calibration) -> Vec<String> {
    let (temperature, no_weights) = match calibration {
        Calibration::Classes(temperature) => (Some(*temperature), None),
        Calibration::Dirichlet(dirichlet) => (dirichlet.temperature(), dirichlet.temperature().map(no_weights)),
        Calibration::Number { .. } => (None, None),
    };
    no_weights.into_iter().chain(temperature.and_then(at_an_end)).collect()
}

fn no_weights(temperature: Temperature) -> String {
    format!(
        "no weights between its classes were found that are likelier of these items than the temperature of {:.3} \
         alone, by which its confidences are",
        temperature.value()
    )
}

fn at_an_end(temperature: Temperature) -> Option<String> {
    let why = match temperature.value() > 1.0 {
        true => "is no better than chance of these items: are their labels the model's classes?",
        false => "says nothing of other items, of which some must be answered wrongly to fit it",
    };
    temperature.is_at_an_end().then(|| {
        format!(
            "the temperature of {:.3} is the end of what is tried, where the likelihood still rises: what is \
             sure by it {why}",
            temperature.value()
        )
    })
}

fn row(outputs: &Outputs) -> Value {
    let [service_us, attended_us] = [&outputs.observed.service_us, &outputs.observed.attended_us].map(|us| {
        let mut sorted = us.clone();
        sorted.sort_by(f32::total_cmp);
        sorted
    });
    json!({
        "file": outputs.file_name(),
        "model": outputs.model,
        "pruned": outputs.pruning.as_ref().map(|pruning| &pruning.steps),
        "words_left": outputs.pruning.as_ref().map(|pruning| pruning.words_left),
        "accuracy": outputs.accuracy(),
        "temperature": match &outputs.calibration {
            Calibration::Classes(temperature) => Some(temperature.value()),
            Calibration::Dirichlet(_) | Calibration::Number { .. } => None,
        },
        "service_us_mean": service_us.iter().sum::<f32>() / service_us.len() as f32,
        "service_us_p50": service_us[service_us.len() / 2],
        "attended_us_p50": attended_us.get(attended_us.len() / 2),
    })
}

/// Of rows as JSON.
fn text(rows: &[Value]) -> String {
    let header = [
        "file",
        "accuracy",
        "temperature",
        "words left",
        "mean, ms",
        "p50",
        "with attention",
    ];
    let line = |row: &Value| {
        let number = |key: &str| row[key].as_f64();
        let percent = |key: &str| number(key).map_or(String::new(), |share| format!("{:.1} %", 100.0 * share));
        let milliseconds = |key: &str| format!("{:.3}", number(key).unwrap_or_default() / 1e3);
        vec![
            row["file"].as_str().unwrap_or_default().to_owned(),
            percent("accuracy"),
            number("temperature").map_or(String::new(), |temperature| format!("{temperature:.3}")),
            percent("words_left"),
            milliseconds("service_us_mean"),
            milliseconds("service_us_p50"),
            milliseconds("attended_us_p50"),
        ]
    };
    table(header, rows.iter().map(line))
}

/// That words are pruned by a model that takes longer than another does: `passes` are models' names and what a pass
/// takes them, in the order of the command line.
fn not_the_fastest_first(passes: &[(&str, f32)]) -> Option<String> {
    let (first, first_us) = passes.first()?;
    let (fastest, fastest_us) = passes.iter().min_by(|one, other| one.1.total_cmp(&other.1))?;
    (fastest != first).then(|| {
        format!(
            "note: words were pruned by the attention of the first model alone, {first}, of which a pass takes {:.3} \
             ms, and {fastest} takes {:.3}: no candidate will prune what {fastest} passes on. Name the fastest model \
             first",
            first_us / 1e3,
            fastest_us / 1e3
        )
    })
}

/// How the models were calibrated that an earlier profile has; those of them that are `asked` about must be the same to
/// the bit.
fn calibrations(folder: &Path, asked: &[TextModel]) -> Result<BTreeMap<String, Fitted>, Failure> {
    let models = profiled_in(folder)?.models;
    let calibrated = models.into_iter().map(|model| {
        let whole = model.whole;
        if let Some(asked) = asked.iter().find(|asked| asked.name() == whole.model) {
            let place = folder.join(whole.file_name());
            asked.check_profiled(&whole.model_hash, &place).map_err(Failure::bad_input)?;
        }
        let fitted = Fitted {
            calibration: Calibration::of_saved(whole.calibration).map_err(Failure::bad_input)?,
            items_hash: whole.calibrated_on,
        };
        Ok((whole.model, fitted))
    });
    calibrated.collect()
}

#[cfg(test)]
mod tests {
    use tenantry_cascade::Dirichlet;

    use super::*;

    #[test]
    fn models_in_the_wrong_order_are_told_of() {
        assert_eq!(not_the_fastest_first(&[("small", 900.0), ("large", 4000.0)]), None);
        assert_eq!(not_the_fastest_first(&[("small", 900.0)]), None);
        let note = not_the_fastest_first(&[("large", 4000.0), ("small", 900.0), ("middle", 2000.0)]).unwrap();
        assert!(
            note.contains("first model alone, large, of which a pass takes 4.000 ms, and small takes 0.900"),
            "{note}"
        );
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }

    #[test]
    fn a_fit_that_came_to_nothing_is_told_of() {
        let of = |temperature: f64, between: f64| {
            let rows = [vec![1.0 / temperature, between], vec![0.0, 1.0 / temperature]];
            of_calibration(&Calibration::Dirichlet(Dirichlet::new(&rows, &[0.0, 0.0]).unwrap()))
        };
        assert!(of(2.0, 0.1).is_empty());
        let told = of(2.0, 0.0);
        assert!(told.len() == 1 && told[0].contains("likelier of these items than the temperature of 2.000 alone"));
        let told = of(0.01, 0.0);
        assert!(told.len() == 2 && told[1].contains("temperature of 0.010 is the end of what is tried"));
    }
}
