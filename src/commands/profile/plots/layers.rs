//! Layers over length and batch, and decoders' parts over tokens and contexts.

use tenantry_profiles::{Card, EncoderLayerRow};
use tenantry_reports::page::Curves;

use super::{LINES, counted, few, grouped, shared_table, table, view};

fn encoder_table(row: &EncoderLayerRow) -> String {
    table(&row.model, row.dtype)
}

pub fn by_tokens(card: &Card) -> Curves {
    let views = grouped(&card.tables.encoder_layer, encoder_table).into_iter();
    let views = views.map(|(option, rows)| {
        let batches = few(rows.iter().map(|row| row.batch), LINES);
        view(
            option,
            rows.into_iter().filter(|row| batches.contains(&row.batch)),
            |row| counted(row.batch, "sequence", "sequences"),
            |row| (f64::from(row.tokens), row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "tokens",
        title: "Encoder layer by length",
        caption: "The median of one layer's forward pass (up) by the tokens of each sequence (across).",
        x: "Tokens of each sequence",
        y: "ms",
        choice: "Model",
        views: views.collect(),
    }
}

pub fn by_batch(card: &Card) -> Curves {
    let views = grouped(&card.tables.encoder_layer, encoder_table).into_iter();
    let views = views.map(|(option, rows)| {
        let lengths = few(rows.iter().map(|row| row.tokens), LINES);
        view(
            option,
            rows.into_iter().filter(|row| lengths.contains(&row.tokens)),
            |row| counted(row.tokens, "token", "tokens"),
            |row| (f64::from(row.batch), row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "batch",
        title: "Encoder layer by batch",
        caption: "The median of one layer's forward pass (up) by the sequences in the batch (across).",
        x: "Sequences",
        y: "ms",
        choice: "Model",
        views: views.collect(),
    }
}

pub fn dense(card: &Card) -> Curves {
    let rows = &card.tables.decoder_dense;
    let views = grouped(rows, |row| table(&row.model, row.dtype)).into_iter();
    let views = views.map(|(option, rows)| {
        view(
            option,
            rows,
            |row| counted(row.tensor_parallel, "card", "cards"),
            |row| (f64::from(row.tokens), row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "dense",
        title: "Decoder layer without attention",
        caption: "The median of one layer's projections and feed-forward (up) by the tokens of a step (across), by the \
                  cards that share it.",
        x: "Tokens of a step",
        y: "ms",
        choice: "Model",
        views: views.collect(),
    }
}

pub fn decode(card: &Card) -> Curves {
    let rows = &card.tables.decoder_decode;
    let views = grouped(rows, |row| shared_table(&row.model, row.dtype, row.tensor_parallel)).into_iter();
    let views = views.map(|(option, rows)| {
        let sequences = few(rows.iter().map(|row| row.sequences), LINES);
        view(
            option,
            rows.into_iter().filter(|row| sequences.contains(&row.sequences)),
            |row| counted(row.sequences, "sequence", "sequences"),
            |row| (f64::from(row.context), row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "decode",
        title: "Decoder layer's attention",
        caption: "The median of one layer's attention of new tokens (up) by what each attends to (across).",
        x: "Tokens of context",
        y: "ms",
        choice: "Model",
        views: views.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::line;
    use crate::cards::find_card;

    #[test]
    fn layers_are_drawn_as_time() {
        let card = find_card("cpu-epyc").unwrap();
        let layers = line(&card, "tokens", "bert-mini f32", "1 sequence");
        let mut rows = card.tables.encoder_layer.iter();
        let (tokens, ms) = layers[0];
        let row = rows.find(|row| (row.model.as_str(), row.batch, f64::from(row.tokens)) == ("bert-mini", 1, tokens));
        assert!((ms - row.unwrap().stats.median_us / 1e3).abs() < 1e-12);
    }
}
