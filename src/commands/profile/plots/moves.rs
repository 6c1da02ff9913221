//! Copies as bandwidth, and look-ups in PLOT tables.

use tenantry_profiles::Card;
use tenantry_reports::page::Curves;

use super::{LINES, counted, few, grouped, view};

pub fn copies(card: &Card) -> Curves {
    let views = grouped(&card.tables.copy, |_| String::new()).into_iter();
    let views = views.map(|(option, rows)| {
        view(
            option,
            rows,
            |row| (if row.pinned { "pinned" } else { "pageable" }).to_owned(),
            |row| (row.bytes as f64, row.bytes as f64 / row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "copies",
        title: "Copies to the card",
        caption: "The bandwidth of one copy (up) by its size (across).",
        x: "Bytes",
        y: "GB/s",
        choice: "",
        views: views.collect(),
    }
}

pub fn lookups(card: &Card) -> Curves {
    let views = grouped(&card.tables.plot_lookup, |row| {
        let fragments = counted(row.fragment_tokens, "token", "tokens");
        format!(
            "{}, {}, {}, fragments of {fragments}",
            row.model, row.tokens_of, row.outcome
        )
    });
    let views = views.into_iter().map(|(option, rows)| {
        // Of each tier.
        let threads = few(rows.iter().map(|row| row.threads), LINES / 2);
        view(
            option,
            rows.into_iter().filter(|row| threads.contains(&row.threads)),
            |row| format!("{}, {}", row.tier, counted(row.threads, "thread", "threads")),
            |row| (f64::from(row.tokens), row.stats.median_us / 1e3),
        )
    });
    Curves {
        id: "lookups",
        title: "Look-ups in a PLOT table",
        caption: "The median of a batch's look-ups and their aggregation (up) by its tokens (across), by where the \
                  table lies and the threads that share the work.",
        x: "Tokens of the batch",
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
    fn copies_are_drawn_as_bandwidth() {
        let card = find_card("cpu-epyc").unwrap();
        let copies = line(&card, "copies", "", "pageable");
        assert_eq!(copies.len(), card.tables.copy.len());
        for (row, (bytes, gbytes_per_s)) in card.tables.copy.iter().zip(copies) {
            assert_eq!(bytes, row.bytes as f64);
            assert!((gbytes_per_s * row.stats.median_us * 1e3 / bytes - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn more_threads_and_memory_look_up_faster() {
        let card = find_card("paper-p5000").unwrap();
        let at = |name: &str| line(&card, "lookups", "bert-base, texts, any, fragments of 3 tokens", name);
        let last = |name: &str| at(name).last().copied().unwrap().1;
        assert!(last("memory, 8 threads") <= last("memory, 1 thread"));
        assert!(last("memory, 1 thread") < last("disk, 1 thread"));
    }
}
