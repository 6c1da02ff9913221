//! Models' answers that are drawn where nobody knows them.

use tenantry_cascade::Reroute;
use tenantry_core::SystemSpec;
use tenantry_core::spec::AnswerJoin;
use tenantry_reports::human;
use tenantry_traces::fit::cascade::STATED_CONFIDENCES;
use tenantry_traces::outcome::{AnswersSpec, OutcomesSpec};

/// What is known of answers that are drawn.
fn outcomes(answers: Option<&AnswersSpec>) -> Option<&OutcomesSpec> {
    match answers? {
        AnswersSpec::Drawn(drawn) => Some(&drawn.outcomes),
        AnswersSpec::Profiled(_) => None,
    }
}

/// Sentences on what is made up of the answers of a system's models.
pub fn drawn_answer_caveats(answers: Option<&AnswersSpec>, system: &SystemSpec) -> Vec<String> {
    let beyond = made_up_shares(answers, system);
    beyond.chain(wrong_answers_drawn(answers, system)).collect()
}

/// Dispatchers whose returned share is no paper's: how many answers of a generator's small model go on is stated for
/// steps between some confidences.
fn made_up_shares<'a>(answers: Option<&'a AnswersSpec>, system: &'a SystemSpec) -> impl Iterator<Item = String> + 'a {
    let generated = outcomes(answers).and_then(|outcomes| match outcomes {
        OutcomesSpec::Generated(generated) => Some(generated),
        OutcomesSpec::Table(_) | OutcomesSpec::Difficulty(_) => None,
    });
    let stages = system.route.iter().flat_map(|route| &route.stages);
    let small = stages.filter(move |stage| generated.is_some_and(|generated| generated.small == stage.pool.name));
    small.filter_map(|stage| {
        let made_up = made_up(stage.dispatch?.reroute, &stage.pool.name)?;
        Some(format!(
            "{}: {made_up} The share returned, latency and accuracy hang on it.",
            system.name
        ))
    })
}

/// From 95 to 5 %, in what the dispatcher's chance is an exponential of (Eq. 4): twice ln 19.
const FALLS_WITHIN: f64 = 5.889;
/// Confidences within which that is as good as a step: a tenth of what lies between two of the paper's.
const STEP: f64 = 0.005;

/// What a dispatcher asks of the answers of a generator's small model that the paper does not say.
fn made_up(reroute: Reroute, small: &str) -> Option<String> {
    const ROUNDING: f64 = 1e-9;
    let cut_off = reroute.cut_off();
    let half_way = f64::midpoint(1.0, cut_off);
    let [low, high] = STATED_CONFIDENCES;
    if !(low - ROUNDING..=high + ROUNDING).contains(&half_way) {
        return Some(format!(
            "the cut-off {cut_off} divides the answers of {small} at a confidence of {half_way}; how many of them lie \
             there is made up, since the paper has them from {low} to {high} only."
        ));
    }
    // The same for each cut-off and k, so that a sweep over them says it once.
    (FALLS_WITHIN * (1.0 - cut_off) > STEP * reroute.slope()).then(|| {
        format!(
            "with a k as gentle as here, whether answers of {small} go on hangs on how their confidences lie between those \
             that the paper has shares of, which is made up: its shares are read as those of a step."
        )
    })
}

/// A sentence on three or more models whose answers are joined, of which nobody says which wrong ones they are. (Of
/// two, one is right or none is; and of two classes one is wrong.)
fn wrong_answers_drawn(answers: Option<&AnswersSpec>, system: &SystemSpec) -> Option<String> {
    let route = system.route.as_ref()?;
    let classes = route.stages.iter().map(|stage| stage.pool.classes).max()?;
    if route.stages.len() < 3 || classes < 3 {
        return None;
    }
    let outcomes = outcomes(answers)?;
    let joined = match (&route.join, outcomes) {
        (AnswerJoin::Last, _) => return None,
        // What averages of others bring is stated, not counted.
        (AnswerJoin::Average(_), OutcomesSpec::Generated(_) | OutcomesSpec::Difficulty(_)) => return None,
        (AnswerJoin::Average(_), OutcomesSpec::Table(_)) => "an average",
        (AnswerJoin::Vote(_), _) => "a vote",
    };
    let lacking = match outcomes {
        OutcomesSpec::Generated(_) | OutcomesSpec::Difficulty(_) => String::new(),
        OutcomesSpec::Table(table) => {
            // A table that cannot be read is refused elsewhere.
            let without = table.without_answers().ok()?;
            let is_asked = |model: &str| route.stages.iter().any(|stage| stage.pool.name == model);
            let columns: Vec<String> =
                without.into_iter().filter_map(|(model, column)| is_asked(model).then_some(column)).collect();
            if columns.is_empty() {
                return None;
            }
            format!(", where {} has no {}", table.path.display(), human::listed(&columns))
        }
    };
    Some(format!(
        "{}: which of {classes} classes a wrong answer is, is drawn{lacking}: {joined} of {} models may be right more often \
         than in truth, where models that err together often give the same answer.",
        system.name,
        route.stages.len()
    ))
}
