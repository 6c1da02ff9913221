//! How a suite's measuring went, in a card's words.

use std::collections::BTreeMap;

/// How the measuring went.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub points: usize,
    /// Points whose median is known as well as was asked.
    pub known: usize,
    /// How well the least known median is known; infinite where a point has too few measurements to tell.
    pub widest: f64,
    /// How well the one in the middle is known, likewise.
    pub middle: f64,
    /// Tables left out, since the user asked to stop before all their points were measured.
    pub left_out: Vec<String>,
    /// Tables left out since there was no memory for one of their points, and what was said of it.
    pub no_memory: BTreeMap<String, String>,
}

impl Outcome {
    /// What a card says of it.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.known < self.points && self.left_out.is_empty() {
            let middle = match self.middle.is_finite() {
                true => format!("half of them to {:.0} %, ", self.middle * 100.0),
                false => String::new(),
            };
            let widest = if self.widest.is_finite() {
                format!("the least certain to {:.0} %", self.widest * 100.0)
            } else {
                "some measured too rarely to tell".to_string()
            };
            notes.push(format!(
                "medians of {} of {} points are known to 2 % (95 % confidence), {middle}{widest}",
                self.known, self.points
            ));
        }
        if !self.left_out.is_empty() {
            notes.push(format!("left out as incomplete: {}", self.left_out.join("; ")));
        }
        if !self.no_memory.is_empty() {
            let of = |(table, error): (&String, &String)| format!("{table} ({error})");
            let tables: Vec<String> = self.no_memory.iter().map(of).collect();
            notes.push(format!("left out for lack of memory: {}", tables.join("; ")));
        }
        notes
    }
}
