//! `report.html`: one page that needs nothing but itself.
//!
//! `answer` is what it says first, `view` what it says in tables and bars; `charts` is how a chart is described to the
//! page's script, `curves`, `changes`, `sweep`, `gantt` and, of profiles, `costs` and `ratios` which there are.
//! Everything a user named passes through the template's escaping; the charts' data is JSON whose `<`, `>` and `&` are
//! escaped, so that no name can end its script element. The page's own content policy forbids it any request.

mod answer;
mod changes;
pub(crate) mod charts;
mod costs;
mod curves;
pub(crate) mod gantt;
mod plan;
mod profile;
mod ratios;
mod sweep;
pub(crate) use sweep::number;
mod trace;
mod validation;
mod view;

pub use costs::{Curves, CurvesView, Mark, Series};
pub use plan::PlanPage;
pub use profile::ProfilePage;
pub use ratios::{NamedRatios, RatioGroup, RatiosPage};
pub use trace::{Fit, TracePage};

use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;

use self::charts::Compared;
use crate::classes;
use crate::compared::FolderSource;
use crate::curves::Run;
use crate::error::ReportError;
use crate::group::Group;
use crate::manifest::{Manifest, quoted};
use crate::metric;
use crate::validation::{Pair, Validation};

const TEMPLATES: [(&str, &str); 10] = [
    ("base.html", include_str!("../../templates/base.html")),
    ("report.html", include_str!("../../templates/report.html")),
    ("bars.html", include_str!("../../templates/bars.html")),
    ("validation.html", include_str!("../../templates/validation.html")),
    ("trace.html", include_str!("../../templates/trace.html")),
    ("plan.html", include_str!("../../templates/plan.html")),
    ("profile.html", include_str!("../../templates/profile.html")),
    ("ratios.html", include_str!("../../templates/ratios.html")),
    ("caveats.html", include_str!("../../templates/caveats.html")),
    ("provenance.html", include_str!("../../templates/provenance.html")),
];

/// Rows of figures that a reader takes in without choosing, and lists of lanes that a page can bear.
const MAX_OPEN_ROWS: usize = 40;

/// All that the template refers to.
#[derive(Serialize)]
struct Content<'a> {
    scenario: &'a str,
    overall: Option<String>,
    answers: Vec<answer::Answer>,
    verdict: Option<(&'static str, &'static str)>,
    systems: &'a [&'a str],
    styles: Vec<charts::LineStyle>,
    points: &'a [String],
    columns: Vec<view::Column>,
    rows: Vec<view::Row>,
    rows_open: bool,
    sweep: Option<&'a charts::Chart>,
    /// Whether something was run with other seeds too.
    repeated: bool,
    charts: &'a [charts::Chart],
    stage_names: [(&'static str, &'static str); 5],
    stages: Vec<view::Bar>,
    lanes: Vec<view::Lanes>,
    gantt: Option<&'a gantt::Gantt>,
    memory: Vec<view::Bar>,
    tenants: Option<&'a charts::Chart>,
    fairness_columns: Vec<(&'static str, &'static str)>,
    fairness: Vec<view::Fairness>,
    class_columns: Vec<(&'static str, &'static str)>,
    classes: Vec<view::Class>,
    workloads: Vec<(String, Vec<(&'static str, String)>)>,
    validations: &'a [validation::View],
    folders: &'a [FolderSource],
    manifest: &'a Manifest,
    /// Of all parts of the page, for its script.
    chart_data: Vec<Drawn<'a>>,
    #[serde(flatten)]
    style: Style,
}

/// What the page's script draws.
#[derive(Serialize)]
#[serde(untagged)]
enum Drawn<'a> {
    Chart(&'a charts::Chart),
    Gantt(&'a gantt::Gantt),
}

/// What makes a page look and move as it does.
#[derive(Serialize)]
struct Style {
    style: &'static str,
    script: &'static str,
    uplot_style: &'static str,
    uplot_script: &'static str,
}

fn style() -> Style {
    Style {
        style: include_str!("../../templates/report.css"),
        script: include_str!("../../templates/report.js"),
        uplot_style: include_str!("../../assets/uplot/uPlot.min.css"),
        uplot_script: include_str!("../../assets/uplot/uPlot.iife.min.js"),
    }
}

fn environment() -> Result<Environment<'static>, ReportError> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    for (name, source) in TEMPLATES {
        environment.add_template(name, source)?;
    }
    environment.add_filter("script_json", script_json);
    environment.add_filter("shell", |words: Vec<String>| -> String {
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    });
    Ok(environment)
}

/// JSON inside of a script element: without the spaces that `tojson` writes, which are a seventh of a page, and without
/// what could end the element.
fn script_json(value: minijinja::Value) -> Result<minijinja::Value, minijinja::Error> {
    let json = serde_json::to_string(&value)
        .map_err(|error| minijinja::Error::new(minijinja::ErrorKind::BadSerialization, "no JSON").with_source(error))?;
    let json = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    Ok(minijinja::Value::from_safe_string(json))
}

/// A report on a scenario's runs.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The scenario's name.
    pub scenario: &'a str,
    /// Simulated, executed or both.
    pub runs: &'a [Run],
    /// Where both machines ran.
    pub validation: Option<&'a Validation>,
    /// Where several folders are compared: which.
    pub folders: &'a [FolderSource],
    /// Where it comes from.
    pub manifest: &'a Manifest,
}

impl Page<'_> {
    /// The whole page.
    ///
    /// # Errors
    /// Only when the template is broken.
    pub fn render(&self) -> Result<String, ReportError> {
        let groups = Group::all(self.runs);
        let compared = Compared::new(&groups);
        let both = self.validation.map(|validation| validation.compared(self.runs));
        let pairs = both.as_deref().map_or(Vec::new(), Pair::all);
        let metrics = metric::shown(&groups);
        let charts = self.charts(&compared);
        let validations: Vec<_> = self
            .validation
            .map_or(&[][..], |validation| &validation.comparisons)
            .iter()
            .zip(&pairs)
            .enumerate()
            .map(|(index, (comparison, pair))| validation::View::new(index, comparison, pair))
            .collect();
        let fairness = view::fairness(&compared);
        let drawn = charts.sweep.iter().chain(&charts.main).chain(&charts.tenants);
        let drawn = drawn.chain(validations.iter().flat_map(|view| &view.charts));
        let content = Content {
            scenario: self.scenario,
            overall: answer::overall(&compared),
            answers: answer::answers(&compared),
            verdict: self.validation.and_then(validation::sentence),
            styles: (0..compared.systems.len()).map(charts::LineStyle::nth).collect(),
            columns: view::columns(&metrics),
            rows: groups.iter().map(|group| view::Row::new(&compared, group, &metrics)).collect(),
            rows_open: groups.len() <= MAX_OPEN_ROWS,
            repeated: groups.iter().any(|group| group.runs.len() > 1),
            chart_data: drawn.map(Drawn::Chart).chain(charts.gantt.iter().map(Drawn::Gantt)).collect(),
            sweep: charts.sweep.as_ref(),
            charts: &charts.main,
            stage_names: view::STAGES,
            stages: view::stages(&compared),
            lanes: match groups.len() <= MAX_OPEN_ROWS {
                true => view::lanes(&compared),
                false => Vec::new(),
            },
            gantt: charts.gantt.as_ref(),
            memory: view::memory(&compared),
            tenants: charts.tenants.as_ref(),
            fairness_columns: view::fairness_columns(&fairness),
            fairness,
            class_columns: classes::class_columns().collect(),
            classes: view::classes(&compared),
            workloads: view::workloads(&compared, self.folders.is_empty()),
            systems: &compared.systems,
            points: &compared.points,
            validations: &validations,
            folders: self.folders,
            manifest: self.manifest,
            style: style(),
        };
        Ok(environment()?.get_template("report.html")?.render(Serde(content))?)
    }

    /// All charts, for a figure of each.
    pub(crate) fn drawn(&self) -> (Vec<charts::Chart>, Option<gantt::Gantt>) {
        let groups = Group::all(self.runs);
        let Charts {
            sweep,
            main,
            tenants,
            gantt,
        } = self.charts(&Compared::new(&groups));
        let both = self.validation.map(|validation| validation.compared(self.runs));
        let pairs = both.as_deref().map_or(Vec::new(), Pair::all);
        let validation = pairs.iter().enumerate();
        let validation = validation.flat_map(|(index, pair)| curves::validation(index, pair));
        (
            sweep.into_iter().chain(main).chain(tenants).chain(validation).collect(),
            gantt,
        )
    }

    fn charts(&self, compared: &Compared<'_, '_>) -> Charts {
        let (mut sweep, mut curves) = (sweep::chart(compared), curves::main(compared));
        let mut tenants = curves::tenants(compared);
        if let Some(limit) = compared.limit() {
            let charts = sweep.iter_mut().chain(&mut curves).chain(&mut tenants);
            let titles = charts.map(|chart| &mut chart.title);
            titles.for_each(|title| *title += &format!(", {limit}"));
        }
        Charts {
            sweep,
            main: curves.into_iter().chain(changes::charts(compared)).collect(),
            tenants,
            gantt: gantt::gantt(compared),
        }
    }
}

/// The charts of all systems together.
struct Charts {
    sweep: Option<charts::Chart>,
    main: Vec<charts::Chart>,
    tenants: Option<charts::Chart>,
    gantt: Option<gantt::Gantt>,
}

#[cfg(test)]
mod tests {
    use tenantry_core::RunRecord;
    use tenantry_traces::Duration;

    use super::*;
    use crate::testing;
    use crate::validation::Limits;

    fn render(runs: &[Run], scenario: &str, manifest: &Manifest) -> String {
        let limits = Limits {
            mean: Some(0.05),
            p98: Some(0.08),
            throughput: Some(0.03),
        };
        let validation = Validation::new(scenario, limits, runs);
        Page {
            scenario,
            runs,
            validation: Some(&validation),
            folders: &[],
            manifest,
        }
        .render()
        .unwrap()
    }

    /// What the page's script reads.
    fn chart_data(page: &str) -> serde_json::Value {
        let (_, rest) = page.split_once(r#"id="chart-data">"#).unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn every_chart_has_its_place_and_lines_of_one_length() {
        let page = render(&testing::runs(), "quickstart", &testing::manifest());
        let charts = chart_data(&page);
        let charts = charts.as_array().unwrap();
        assert_eq!(charts.len(), 3 + 2 * 2);
        for chart in charts {
            check(&page, chart);
        }
    }

    /// Its place, its views and their lines.
    fn check(page: &str, chart: &serde_json::Value) {
        let id = chart["id"].as_str().unwrap();
        assert_eq!(page.matches(&format!(r#"id="chart-{id}""#)).count(), 1, "{id}");
        let options = |choice: &serde_json::Value| choice["options"].as_array().unwrap().len();
        let choices = chart["choices"].as_array().map(|choices| choices.iter().map(options).product());
        let views = chart["views"].as_array().unwrap();
        assert_eq!(views.len(), choices.unwrap_or(1), "{id}");
        for view in views {
            let xs = view["xs"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
            assert!(xs.clone().is_sorted(), "{id}");
            for line in view["lines"].as_array().unwrap() {
                assert_eq!(line["ys"].as_array().unwrap().len(), xs.len(), "{id}");
            }
        }
    }

    #[test]
    fn over_a_sweep_each_chart_has_a_view_a_point_and_rows_are_bound_to_theirs() {
        let mut runs = Vec::new();
        for tenants in [10, 100, 1000] {
            for mut run in testing::runs() {
                run.summary.parameters.insert("tenants.count".into(), tenants.into());
                runs.push(run);
            }
        }
        let page = Page {
            scenario: "swept",
            runs: &runs,
            validation: None,
            folders: &[],
            manifest: &testing::manifest(),
        };
        let page = page.render().unwrap();
        let charts = chart_data(&page);
        assert_eq!(charts[0]["id"], "sweep");
        assert_eq!(charts[1]["views"].as_array().unwrap().len(), 3);
        for chart in charts.as_array().unwrap() {
            check(&page, chart);
        }
        assert_eq!(page.matches("<option").count(), 3);
        assert!(page.contains(r#"data-point="2" hidden"#) && page.contains(r#"data-point="0">"#));
        assert!(page.contains("Busy share of each lane of hmi tenants.count 10, simulated<"));
    }

    #[test]
    fn the_answer_comes_first() {
        let page = render(&testing::runs(), "quickstart", &testing::manifest());
        let answer = page.find("meets its target of 150\u{a0}ms at p98").unwrap();
        assert!(answer < page.find("<table").unwrap());
        assert!(page.contains("misses its target of 150\u{a0}ms at p98"));
        assert!(
            page.contains("Busy share of each lane of hmi, simulated<"),
            "no blank before a comma"
        );
    }

    #[test]
    fn nothing_is_fetched() {
        let page = render(&testing::runs(), "quickstart", &testing::manifest());
        for attribute in ["src=", "url(", "@import", "href=\"http"] {
            assert!(!page.contains(attribute), "{attribute}");
        }
    }

    #[test]
    fn hostile_names_stay_names() {
        let hostile = r#"</script><script>alert('1')</script><img src=x onerror="alert(2)">"#;
        let mut runs = vec![
            Run::new(
                testing::labels(hostile, "virtual"),
                &testing::record(100, Duration::from_millis(5)),
            ),
            Run::new(
                testing::labels(hostile, hostile),
                &testing::record(100, Duration::from_millis(5)),
            ),
        ];
        for run in &mut runs {
            run.summary.parameters.insert(hostile.into(), hostile.into());
        }
        let manifest = Manifest {
            caveats: vec![hostile.into()],
            command_line: vec![hostile.into()],
            ..testing::manifest()
        };
        let page = render(&runs, hostile, &manifest);
        let harmless = render(&testing::runs(), "quickstart", &testing::manifest());
        assert_eq!(page.matches("<script").count(), harmless.matches("<script").count());
        assert_eq!(page.matches("</script").count(), harmless.matches("</script").count());
        assert!(!page.contains("<img"));
        assert!(
            chart_data(&page)[0]["views"][0]["lines"][0]["name"].as_str().unwrap().starts_with(hostile),
            "unharmed in the data"
        );
    }

    /// A system that shares all has no part for tenants in the memory of its cards, while another on the page has.
    #[test]
    fn a_system_without_one_of_the_parts_has_a_page() {
        let mut record = testing::record(100, Duration::from_millis(50));
        record.memory.tenant_bytes = 0;
        record.memory.per_tenant_bytes = 0;
        record.swaps = None;
        let mut runs = testing::runs();
        runs.push(Run::new(testing::labels("bert-shared", "virtual"), &record));
        assert!(render(&runs, "three", &Manifest::default()).contains("bert-shared"));
    }

    #[test]
    fn a_run_that_finished_nothing_has_a_page() {
        let runs = [Run::new(testing::labels("idle", "virtual"), &RunRecord::default())];
        let page = Page {
            scenario: "idle",
            runs: &runs,
            validation: None,
            folders: &[],
            manifest: &Manifest::default(),
        };
        let page = page.render().unwrap();
        assert!(page.contains("no request that came after the warm-up has ended"));
        assert_eq!(chart_data(&page), serde_json::json!([]));
    }
}
