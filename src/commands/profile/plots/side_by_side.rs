//! What instances and streams that compute at the same time cost each other.

use tenantry_profiles::Card;
use tenantry_reports::page::{Curves, CurvesView};

use super::{LINES, counted, few, grouped, table, view};

/// Lengths that are shown of each table.
const LENGTHS: usize = 3;

/// What so many streams take, each with a batch of its own.
struct AtOnce {
    table: String,
    streams: u32,
    batch: u32,
    tokens: u32,
    us: f64,
}

/// A family's rows, of whichever type, as such.
macro_rules! at_once {
    ($rows:expr) => {{
        let rows = $rows.iter().map(|row| AtOnce {
            table: table(&row.model, row.dtype),
            streams: row.streams,
            batch: row.batch,
            tokens: row.tokens,
            us: row.stats.median_us,
        });
        rows.collect::<Vec<_>>()
    }};
}

fn by_streams(rows: &[AtOnce]) -> Vec<CurvesView> {
    let views = grouped(rows, |row| row.table.clone()).into_iter();
    let views = views.flat_map(|(option, rows)| {
        let lengths = few(rows.iter().map(|row| row.tokens), LENGTHS);
        let batches = few(rows.iter().map(|row| row.batch), LINES);
        lengths.into_iter().rev().map(move |tokens| {
            let rows = rows.iter().copied();
            view(
                format!("{option}, {}", counted(tokens, "token", "tokens")),
                rows.filter(|row| row.tokens == tokens && batches.contains(&row.batch)),
                |row| counted(row.batch, "sequence", "sequences"),
                |row| (f64::from(row.streams), row.us / 1e3),
            )
        })
    });
    views.collect()
}

pub fn layers(card: &Card) -> Curves {
    let rows = at_once!(card.tables.concurrent_layer);
    Curves {
        id: "layers-at-once",
        title: "Encoder layers side by side",
        caption: "The median of one layer (up) by the instances that compute one at the same time (across): level \
                  where they do not disturb each other, twice as high at twice as many where they take turns.",
        x: "Instances at once",
        y: "ms",
        choice: "Table",
        views: by_streams(&rows),
    }
}

pub fn models(card: &Card) -> Curves {
    let rows = at_once!(card.tables.concurrent_model);
    Curves {
        id: "models-at-once",
        title: "Compiled encoders side by side",
        caption: "The median of a whole pass of a model that was compiled for its shape (up) by the instances that \
                  make one at the same time (across).",
        x: "Instances at once",
        y: "ms",
        choice: "Table",
        views: by_streams(&rows),
    }
}

pub fn tasks(card: &Card) -> Curves {
    let rows = at_once!(card.tables.concurrent_pet);
    Curves {
        id: "tasks-at-once",
        title: "Tasks' operators side by side",
        caption: "The median until the last stream has computed one layer's operators, a mini-batch of each kind of \
                  task each (up), by the streams that do so at the same time (across).",
        x: "Streams at once",
        y: "ms",
        choice: "Table",
        views: by_streams(&rows),
    }
}

pub fn steps(card: &Card) -> Curves {
    let tables = grouped(&card.tables.concurrent_step, |row| {
        let model = table(&row.model, row.dtype);
        format!("{model}, {} added", row.added)
    });
    let views = tables.into_iter().map(|(option, rows)| {
        let sequences = few(rows.iter().map(|row| row.sequences), LINES);
        view(
            option,
            rows.into_iter().filter(|row| sequences.contains(&row.sequences)),
            |row| counted(row.sequences, "sequence", "sequences"),
            |row| (f64::from(row.streams), row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "steps-at-once",
        title: "Decoder steps side by side",
        caption: "The median of a whole step (up) by the instances that make one at the same time (across), by what \
                  tenants add to the model.",
        x: "Instances at once",
        y: "ms",
        choice: "Table",
        views: views.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::line;
    use crate::cards::find_card;

    #[test]
    fn instances_at_once_are_drawn_from_one_on() {
        let card = find_card("cpu").unwrap();
        let layer = line(&card, "layers-at-once", "bert-mini f32, 128 tokens", "1 sequence");
        let step = line(&card, "steps-at-once", "tiny-llama f32, nothing added", "1 sequence");
        for line in [layer, step] {
            assert_eq!(line.iter().map(|point| point.0).collect::<Vec<_>>(), [1.0, 2.0]);
            // But for the tenth by which a visit differs from the next.
            assert!(
                line[1].1 >= 0.9 * line[0].1,
                "company does not make it faster: {line:?}"
            );
        }
    }
}
