//! Commands that README and the documents print: the program knows each of them, its options, and the scenario with
//! what is set in it, where that is one of ours.

use std::fs;
use std::path::Path;

use tenantry::cli;
use tenantry_scenarios::Scenario;

/// README and the documents.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let documents = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> =
        documents.filter(|page| page.extension().is_some_and(|extension| extension == "md")).collect();
    pages.push(root.join("README.md"));
    let named = |page: &std::path::PathBuf| page.strip_prefix(root).unwrap().display().to_string();
    pages.iter().map(|page| (named(page), fs::read_to_string(page).unwrap())).collect()
}

/// The commands of a page that stand on lines of their own, in one line each.
fn commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let line = line.trim_start();
        let line = line.strip_prefix("$ ").unwrap_or(line);
        if !line.starts_with("tenantry ") {
            continue;
        }
        let mut command = line.to_owned();
        while shell_words::split(&command).is_err() || command.ends_with('\\') {
            command = command.trim_end_matches('\\').to_owned() + " " + lines.next().expect("a command ends").trim();
        }
        commands.push(command);
    }
    commands
}

#[test]
fn every_command_of_a_page_is_one() {
    let (mut known, mut loaded) = (0, 0);
    for (page, text) in pages() {
        for command in commands(&text) {
            // What follows another command, or a file that the output goes to, is the shell's.
            let own = command.split(" | ").next().unwrap().split(" > ").next().unwrap();
            let words = shell_words::split(own).unwrap();
            let asked = cli::command().try_get_matches_from(&words);
            let asked = asked.unwrap_or_else(|error| panic!("{page}: {command}\n{error}"));
            known += 1;
            let (_, of_command) = asked.subcommand().expect("one is asked for");
            let Ok(Some(scenario)) = of_command.try_get_one::<String>("scenario") else {
                continue;
            };
            let is_ours = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("scenarios")
                .join(scenario)
                .with_extension("yaml")
                .exists()
                || scenario.starts_with("scenarios/");
            let set = of_command.try_get_many::<String>("set").ok().flatten();
            let set: Vec<String> = set.into_iter().flatten().cloned().collect();
            // Recordings that are not part of the repository may not be there.
            if is_ours && !set.iter().any(|set| set.contains("../shared")) {
                Scenario::load(scenario, &set).unwrap_or_else(|errors| panic!("{page}: {command}\n{errors}"));
                loaded += 1;
            }
        }
    }
    assert!(
        known > 50 && loaded > 15,
        "{known} commands, {loaded} of scenarios of ours"
    );
}
