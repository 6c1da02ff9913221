//! A card survives the way to disk and back, and nothing is lost when it replaces another.

use std::fs;

use proptest::prelude::*;
use tenantry_profiles::testing::synthetic_card;
use tenantry_profiles::{
    Card, CopyRow, Direction, Family, LeftOut, LookupOutcome, ModelShape, Origin, Source, Stats, TableSummary, Tables,
    Tier, TokensOf, describe,
};

#[test]
fn saving_and_loading_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/card");
    let card = synthetic_card();
    card.save(&path).unwrap();
    let loaded = Card::load(&path).unwrap();
    assert_eq!(loaded.digest(), card.digest());
    assert_eq!(
        Card {
            tables: Tables::default(),
            ..loaded
        },
        Card {
            tables: Tables::default(),
            ..card
        }
    );
}

#[test]
fn replacing_a_profile_drops_its_tables_and_keeps_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    synthetic_card().save(&path).unwrap();
    fs::write(path.join("README.md"), "mine").unwrap();
    fs::create_dir(path.join("plots")).unwrap();

    let mut smaller = synthetic_card();
    smaller.tables.adapter.clear();
    smaller.save(&path).unwrap();
    assert_eq!(Card::load(&path).unwrap().digest(), smaller.digest());
    assert_eq!(fs::read_to_string(path.join("README.md")).unwrap(), "mine");
    assert!(path.join("plots").is_dir());
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "nothing is left beside it"
    );
}

fn with_held_out() -> Card {
    let mut card = synthetic_card();
    card.held_out.copy.push(CopyRow {
        direction: Direction::HostToDevice,
        pinned: true,
        bytes: 777,
        stats: Stats::of(&mut [10.0, 11.0, 12.0]),
    });
    card
}

#[test]
fn held_out_points_have_files_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let card = with_held_out();
    card.save(&path).unwrap();
    let loaded = Card::load(&path).unwrap();
    assert_eq!(loaded.held_out.copy, card.held_out.copy);
    assert_eq!(loaded.tables.copy.len(), card.tables.copy.len());
    assert_eq!(loaded.digest(), card.digest());
    assert_ne!(card.digest(), synthetic_card().digest());

    synthetic_card().save(&path).unwrap();
    assert!(
        !path.join("copy.held-out.csv").exists(),
        "a card that has none leaves none"
    );
}

#[test]
fn points_held_out_of_no_table_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let mut card = with_held_out();
    card.held_out.copy[0].pinned = false;
    card.tables.copy.retain(|row| row.pinned);
    let message = card.validate().unwrap_err().to_string();
    let refused =
        "copy.held-out.csv:2: table: must be one of copy.csv: direction=host-to-device pinned=true, got \"direction=";
    assert!(message.contains(refused), "{message}");

    // A point that the table has, the second of two.
    let mut card = with_held_out();
    let there = card.tables.copy.iter().find(|row| row.pinned && row.bytes > 777).unwrap();
    card.held_out.copy.push(there.clone());
    let message = card.validate().unwrap_err().to_string();
    let refused =
        "copy.held-out.csv:3: direction=host-to-device pinned=true: must be points that copy.csv does not have";
    assert!(message.contains(refused), "{message}");

    with_held_out().save(&path).unwrap();
    fs::rename(path.join("copy.held-out.csv"), path.join("copy.heldout.csv")).unwrap();
    let message = Card::load(&path).unwrap_err().to_string();
    assert!(message.contains("did you mean copy.held-out.csv?"), "{message}");
}

/// As on systems to which both are one name, or where only one of two files was copied.
#[test]
fn a_table_that_is_missing_or_called_otherwise_is_blamed_and_not_its_held_out_points() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    with_held_out().save(&path).unwrap();
    fs::rename(path.join("copy.csv"), path.join("copy.CSV")).unwrap();
    let message = Card::load(&path).unwrap_err().to_string();
    let refused = format!("{}: copy.CSV: must be encoder_layer.csv, ", path.display());
    assert!(message.starts_with(&refused), "{message}");
    fs::remove_file(path.join("copy.CSV")).unwrap();
    assert_eq!(
        Card::load(&path).unwrap_err().to_string(),
        format!(
            "{}: copy.csv: must be there, beside its held-out points, got no such file",
            path.display()
        )
    );
}

/// Profiles from before look-ups were told apart by what they met and by the length of fragments: theirs were of
/// trigrams, all together, and an origin calls the table as it did then.
#[test]
fn older_tables_of_look_ups_are_read_as_what_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card");
    let mut card = synthetic_card();
    let table = Some("model=tiny tier=memory".into());
    card.origins.push(Origin::new(Family::PlotLookup, table, Source::Assumed, "a guess"));
    card.save(&path).unwrap();
    let file = path.join("plot_lookup.csv");
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.starts_with("model,tier,outcome,tokens_of,threads,tokens,fragment_tokens,count,"),
        "{text}"
    );
    let without = |line: &str| {
        let cells = line.split(',').enumerate().filter(|(column, _)| ![2, 3, 6].contains(column));
        cells.map(|(_, cell)| cell).collect::<Vec<_>>().join(",")
    };
    let older: Vec<String> = text.lines().map(without).collect();
    assert!(older[0].starts_with("model,tier,threads,tokens,count,"), "{}", older[0]);
    fs::write(&file, older.join("\n") + "\n").unwrap();
    let loaded = Card::load(&path).unwrap();
    assert_eq!(loaded.digest(), card.digest());
    let tiny = ModelShape::builtin("tiny").unwrap();
    let cost = |card: &Card, outcome| {
        let lookup = card.plot_lookup(&tiny, Tier::Memory, outcome, TokensOf::Texts).unwrap();
        lookup.cost(1, 64, 3)
    };
    for outcome in [LookupOutcome::Any, LookupOutcome::Fallback] {
        assert_eq!(cost(&loaded, outcome), cost(&card, outcome));
    }
}

#[test]
fn a_folder_of_something_else_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.tex"), "years of work").unwrap();
    let message = synthetic_card().save(folder.path()).unwrap_err().to_string();
    let said = "folder: must be new, empty or a profile's, got one that holds something else than a profile";
    assert_eq!(message, format!("{}: {said}", folder.path().display()));
    assert!(folder.path().join("thesis.tex").exists());
}

/// It may be where somebody works, or a disk's own.
#[cfg(unix)]
#[test]
fn an_empty_folder_stays_and_is_filled() {
    use std::os::unix::fs::MetadataExt;
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("here");
    fs::create_dir(&folder).unwrap();
    let which = || fs::metadata(&folder).unwrap().ino();
    let before = which();
    synthetic_card().save(&folder).unwrap();
    assert_eq!(Card::load(&folder).unwrap().digest(), synthetic_card().digest());
    assert_eq!((which(), fs::read_dir(root.path()).unwrap().count()), (before, 1));
}

#[test]
fn cards_are_found_by_path_and_by_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("profiles/cards/mine");
    synthetic_card().save(&path).unwrap();
    let search = [root.path().join("elsewhere"), root.path().to_path_buf()];
    assert_eq!(Card::find("mine", &search).unwrap().digest(), synthetic_card().digest());
    assert_eq!(
        Card::find(path.to_str().unwrap(), &[]).unwrap().digest(),
        synthetic_card().digest()
    );
    assert!(Card::available(&search).contains(&"mine".to_string()));
}

#[test]
fn every_embedded_card_is_sound() {
    for name in Card::embedded_names() {
        let card = Card::embedded(name).unwrap().unwrap();
        assert_eq!(card.name, name, "a card is called as its folder");
    }
    assert!(Card::embedded("no such card").unwrap().is_none());
}

#[test]
fn the_digest_depends_on_content_alone() {
    let card = synthetic_card();
    let mut shuffled = card.clone();
    shuffled.tables.encoder_layer.reverse();
    shuffled.tables.copy.rotate_left(3);
    assert_eq!(shuffled.digest(), card.digest());
    let mut other = card.clone();
    other.tables.copy[0].stats.count += 1;
    assert_ne!(other.digest(), card.digest());
    let mut noted = card.clone();
    noted.provenance.notes.push("another".into());
    assert_ne!(noted.digest(), card.digest());
}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn any_measured_numbers_survive(medians_us in prop::collection::vec(1e-3..1e9_f64, 1..20)) {
        let mut medians_us = medians_us;
        medians_us.sort_by(f64::total_cmp);
        let mut card = synthetic_card();
        let row = |(index, median_us): (usize, &f64)| CopyRow {
            direction: Direction::HostToDevice,
            pinned: true,
            bytes: 1 << index,
            stats: Stats {
                count: 7,
                mean_us: median_us * 1.05,
                median_us: *median_us,
                p05_us: median_us * 0.9,
                p95_us: median_us * 1.1,
                p99_us: median_us * 1.3,
            },
        };
        card.tables.copy = medians_us.iter().enumerate().map(row).collect();
        let folder = tempfile::tempdir().unwrap();
        card.save(&folder.path().join("card")).unwrap();
        prop_assert_eq!(Card::load(&folder.path().join("card")).unwrap().tables.copy, card.tables.copy);
    }
}

/// What an origin says of points that were moved is so of the table that is there: of as many points, none of which is
/// to be moved any more.
#[test]
fn what_was_moved_is_told_of_the_table_that_is_there() {
    let mut told = 0;
    for name in Card::embedded_names() {
        let card = Card::embedded(name).unwrap().unwrap();
        let tables = describe(&card);
        for origin in card.origins.list() {
            let moved = origin.error.as_deref().filter(|_| origin.kind == Source::Measured);
            let moved = moved.and_then(|error| error.split_once(" points were moved")?.0.split_once(" of "));
            let Some((moved, points)) = moved else {
                assert_eq!(origin.moved, None, "{name}: {origin:?}");
                continue;
            };
            let is_it =
                |table: &&TableSummary| (table.family, Some(&table.table)) == (origin.family, origin.table.as_ref());
            let table = tables.iter().find(is_it).expect("a card has its origins' tables");
            assert_eq!(points, table.points.to_string(), "{name}: {origin:?}");
            assert_eq!(
                origin.moved.map(|moved| moved.points.to_string()).as_deref(),
                Some(moved),
                "{name}: {origin:?}"
            );
            assert_eq!(Some(table.moved), origin.moved, "{name}: {origin:?}");
            assert!(
                table.error.as_ref().is_none_or(|error| error.of == LeftOut::HeldOut),
                "{name}: {origin:?}"
            );
            told += 1;
        }
    }
    assert!(told > 0);
}
