//! All measured points of a card, by op family, and their CSV form.

use std::collections::BTreeSet;

use csv::StringRecord;

use crate::cells::{Cells, Field, RefusedIn, one_of};
use crate::check::{check_rows, dip};
use crate::error::Invalid;
use crate::family::Family;
use crate::mend::{Mended, mend};
use crate::model::ModelShape;
use crate::names::near_miss;
use crate::rows::{
    AdapterRow, AttendedLayerRow, CollectiveRow, ConcurrentLayerRow, ConcurrentModelRow, ConcurrentPetRow,
    ConcurrentStepRow, CopyResumeRow, CopyRow, DecoderDecodeRow, DecoderDenseRow, DecoderEndsRow, DecoderMixedRow,
    DecoderPrefillRow, DecoderPromptsRow, DecoderStepRow, DecoderWholePromptRow, DispatchRow, EmbeddingRow,
    EncoderLayerRow, HandOverRow, HeadRow, LookupResumeRow, LoraRow, ModelLoadRow, PetRow, PlanRow, PlotLookupRow,
    ResumeRow, Row, SolveRow, StaticModelRow, TaggingHeadRow, TextLookRow, TextPassRow, sort,
};
use crate::slice::{Point, Slice, slices, table_of};

/// What rows are there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// They price ops.
    Table,
    /// They tell how far the tables' prices are off.
    HeldOut,
}

/// The measured points of a card, in any order. A profiler pushes rows; [`Card::save`](crate::Card::save) checks and
/// sorts them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tables {
    /// Encoder layers.
    pub encoder_layer: Vec<EncoderLayerRow>,
    /// Embeddings.
    pub embedding: Vec<EmbeddingRow>,
    /// Classification heads.
    pub head: Vec<HeadRow>,
    /// Tagging heads.
    pub tagging_head: Vec<TaggingHeadRow>,
    /// Adapters of one layer.
    pub adapter: Vec<AdapterRow>,
    /// Copies.
    pub copy: Vec<CopyRow>,
    /// Loads of whole models.
    pub model_load: Vec<ModelLoadRow>,
    /// Dispatch overheads.
    pub dispatch: Vec<DispatchRow>,
    /// Hand-overs between threads that have been idle.
    pub hand_over: Vec<HandOverRow>,
    /// Compute after idleness.
    pub resume: Vec<ResumeRow>,
    /// The same of copies.
    pub copy_resume: Vec<CopyResumeRow>,
    /// The same of look-ups.
    pub lookup_resume: Vec<LookupResumeRow>,
    /// Encoders compiled for one shape.
    pub static_model: Vec<StaticModelRow>,
    /// Encoder layers side by side.
    pub concurrent_layer: Vec<ConcurrentLayerRow>,
    /// Compiled encoders side by side.
    pub concurrent_model: Vec<ConcurrentModelRow>,
    /// Operators of PetS's tasks on several streams at once.
    pub concurrent_pet: Vec<ConcurrentPetRow>,
    /// Encoder layers that also say which tokens were attended to.
    pub attended_layer: Vec<AttendedLayerRow>,
    /// Whole passes over texts.
    pub text_pass: Vec<TextPassRow>,
    /// Looks at what they came to.
    pub text_look: Vec<TextLookRow>,
    /// PLOT look-ups.
    pub plot_lookup: Vec<PlotLookupRow>,
    /// Tasks' own operators.
    pub pet: Vec<PetRow>,
    /// Decoder layers without attention.
    pub decoder_dense: Vec<DecoderDenseRow>,
    /// Attention of prompts.
    pub decoder_prefill: Vec<DecoderPrefillRow>,
    /// Attention of prompts that are computed at once.
    pub decoder_whole_prompt: Vec<DecoderWholePromptRow>,
    /// Attention of new tokens.
    pub decoder_decode: Vec<DecoderDecodeRow>,
    /// Attention of prompts and new tokens together.
    pub decoder_mixed: Vec<DecoderMixedRow>,
    /// Attention of several prompts together.
    pub decoder_prompts: Vec<DecoderPromptsRow>,
    /// Decoders before and after their layers.
    pub decoder_ends: Vec<DecoderEndsRow>,
    /// Whole steps of decoders.
    pub decoder_step: Vec<DecoderStepRow>,
    /// Whole steps of decoders side by side.
    pub concurrent_step: Vec<ConcurrentStepRow>,
    /// LoRA of one layer.
    pub lora: Vec<LoraRow>,
    /// What cards do together.
    pub collective: Vec<CollectiveRow>,
    /// Allocation programs.
    pub solve: Vec<SolveRow>,
    /// Pools split into batches.
    pub plan: Vec<PlanRow>,
}

/// Runs an expression for each family's rows, whatever their type: changed, `shared`, or in a `pair` of tables, of which
/// the first are changed. Here alone stands which families there are beside [`Family`].
macro_rules! for_each_family {
    (@listed $how:ident $($what:tt)+) => {
        $crate::tables::for_each_family!(@$how $($what)+;
            encoder_layer embedding head tagging_head adapter copy model_load dispatch hand_over resume copy_resume
            lookup_resume static_model concurrent_layer concurrent_model concurrent_pet attended_layer text_pass
            text_look plot_lookup pet decoder_dense decoder_prefill decoder_whole_prompt decoder_decode decoder_mixed
            decoder_prompts decoder_ends decoder_step concurrent_step lora collective solve plan)
    };
    (@changed $tables:ident, $rows:ident, $body:expr; $($family:ident)+) => {
        $({ let $rows = &mut $tables.$family; $body; })+
    };
    (@shared $tables:ident, $rows:ident, $body:expr; $($family:ident)+) => {
        $({ let $rows = &$tables.$family; $body; })+
    };
    (@pair $ours:ident, $theirs:ident, $a:ident, $b:ident, $body:expr; $($family:ident)+) => {
        $({ let ($a, $b) = (&mut $ours.$family, &$theirs.$family); $body; })+
    };
    (shared $tables:expr, $rows:ident => $body:expr) => {{
        let tables = $tables;
        $crate::tables::for_each_family!(@listed shared tables, $rows, $body);
    }};
    (pair $ours:expr, $theirs:expr, $a:ident, $b:ident => $body:expr) => {{
        let (ours, theirs) = ($ours, $theirs);
        $crate::tables::for_each_family!(@listed pair ours, theirs, $a, $b, $body);
    }};
    ($tables:expr, $rows:ident => $body:expr) => {{
        let tables = $tables;
        $crate::tables::for_each_family!(@listed changed tables, $rows, $body);
    }};
}

pub(crate) use for_each_family;

impl Tables {
    /// Replaces the rows of every table that `other` has by those of `other`.
    pub(crate) fn replace_with(&mut self, other: &Tables) {
        for_each_family!(pair self, other, ours, theirs => {
            let replaced: BTreeSet<Vec<String>> = theirs.iter().map(Row::names).collect();
            ours.retain(|row| !replaced.contains(&row.names()));
            ours.extend(theirs.iter().cloned());
        });
    }

    /// The rows of all tables but these, called as [`names`](Self::names) does.
    pub fn without(&self, tables: &[(Family, String)]) -> Tables {
        let mut others = self.clone();
        for_each_family!(&mut others, rows => leave_out(rows, tables));
        others
    }

    /// The tables that there are: their families, and what `tenantry profile show` calls them.
    pub fn names(&self) -> Vec<(Family, String)> {
        let slices = self.slices().into_iter();
        slices.map(|slice| (slice.family, slice.label)).collect()
    }

    /// Where each row lies: its family, its table and its sizes.
    pub fn places(&self) -> Vec<String> {
        let of_slice = |slice: &Slice| -> Vec<String> {
            let place = |point: &Point| format!("{} {} {}", slice.family, slice.label, slice.describe(&point.at));
            slice.points.iter().map(place).collect()
        };
        self.slices().iter().flat_map(of_slice).collect()
    }

    /// The same rows with times of four digits, for numbers that are not truer than that.
    pub(crate) fn rounded(mut self) -> Tables {
        for_each_family!(&mut self, rows => rows.iter_mut().for_each(|row| {
            let rounded = row.stats().rounded();
            *row.stats_mut() = rounded;
        }));
        self
    }

    /// The same rows with times that are so many times as long.
    pub(crate) fn at_pace(mut self, ratio: f64) -> Tables {
        for_each_family!(&mut self, rows => rows.iter_mut().for_each(|row| {
            let stats = row.stats().at_pace(ratio);
            *row.stats_mut() = stats;
        }));
        self
    }

    /// The tables of all families, sorted.
    pub(crate) fn slices(&self) -> Vec<Slice> {
        let mut all = Vec::new();
        for_each_family!(&mut self.sorted(), rows => all.extend(slices(rows)));
        all
    }

    /// Whether any op takes another time than its median; on cards that are made from papers none does.
    pub fn vary(&self) -> bool {
        let mut vary = false;
        for_each_family!(shared self, rows => vary |= rows.iter().any(|row| row.stats().varies()));
        vary
    }

    /// Whether an op costs less than a smaller one of its table, by more than both spreads allow: a card with such a
    /// table is refused.
    pub fn dips(&self) -> bool {
        self.slices().iter().any(|slice| dip(slice).is_some())
    }

    /// The same tables, those [that dip](Self::dips) moved as little as it takes to rise: each point half-way between
    /// the largest median of smaller ops and the smallest of larger ones. Says of each table that was moved how far.
    pub fn rising(mut self) -> (Tables, Vec<Mended>) {
        let mut mended = Vec::new();
        for_each_family!(&mut self, rows => mend(rows, &mut mended));
        (self, mended)
    }

    /// The same rows in the order of a saved profile.
    pub(crate) fn sorted(&self) -> Tables {
        let mut sorted = self.clone();
        for_each_family!(&mut sorted, rows => sort(rows));
        sorted
    }

    /// The text of each family's file, sorted; families without rows have none.
    pub(crate) fn to_csv(&self) -> Vec<(Family, String)> {
        let mut files = Vec::new();
        for_each_family!(&mut self.sorted(), rows => files.extend(table_to_csv(rows)));
        files
    }

    /// The tables of all families, each point with its row's place in its family.
    pub(crate) fn slices_of_rows(&self) -> Vec<Slice> {
        let mut all = Vec::new();
        for_each_family!(shared self, rows => all.extend(slices(rows)));
        all
    }

    /// Reads one family's file into its rows and checks them. `models` are those that rows may be of. Returns each
    /// row's line.
    pub(crate) fn read_csv(
        &mut self,
        family: Family,
        role: Role,
        file: &str,
        text: &str,
        models: &[ModelShape],
    ) -> Result<Vec<u64>, Invalid> {
        let mut lines = Vec::new();
        for_each_family!(self, rows => if family_of(rows) == family {
            *rows = read_table(file, role, text, models, &mut lines)?;
        });
        Ok(lines)
    }
}

/// The family that rows are of, for [`for_each_family`].
pub(crate) fn family_of<R: Row>(_: &[R]) -> Family {
    R::FAMILY
}

/// Leaves the rows of these tables out.
fn leave_out<R: Row>(rows: &mut Vec<R>, tables: &[(Family, String)]) {
    let of_family = |(family, _): &&(Family, String)| *family == R::FAMILY;
    let left_out: BTreeSet<&str> = tables.iter().filter(of_family).map(|(_, table)| table.as_str()).collect();
    if !left_out.is_empty() {
        rows.retain(|row| !left_out.contains(table_of(row).as_str()));
    }
}

fn table_to_csv<R: Row>(rows: &[R]) -> Option<(Family, String)> {
    let mut records = rows.iter().map(|row| {
        let at = row.at().iter().map(u64::to_string).collect();
        [row.names(), at, row.stats().write().to_vec()].concat()
    });
    (!rows.is_empty()).then(|| (R::FAMILY, csv_of(&R::columns(), &mut records)))
}

fn csv_of(columns: &[&str], records: &mut dyn Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns).expect("a buffer can be written");
    for record in records {
        writer
            .write_record(record)
            .expect("a buffer can be written, all records have the header's length");
    }
    String::from_utf8(writer.into_inner().expect("a buffer can be flushed")).expect("all cells are UTF-8")
}

fn read_table<R: Row>(
    file: &str,
    role: Role,
    text: &str,
    models: &[ModelShape],
    lines: &mut Vec<u64>,
) -> Result<Vec<R>, Invalid> {
    let mut rows = Vec::new();
    each_record(file, R::FAMILY, &R::columns(), text, &mut |line, cells| {
        rows.push(R::read(cells)?);
        lines.push(line);
        Ok(())
    })?;
    check_rows(file, role, &rows, lines, models)?;
    Ok(rows)
}

/// Reads a family's records: `read` hears of each and its line, and says which of its columns it must refuse.
fn each_record(
    file: &str,
    family: Family,
    columns: &[&str],
    text: &str,
    read: &mut dyn FnMut(u64, &Record<'_>) -> Result<(), RefusedIn>,
) -> Result<(), Invalid> {
    let unreadable = |error: csv::Error| {
        let line = error.position().map_or(1, |position| position.line());
        Invalid::new(file, "line", "comma-separated values", error.to_string()).in_line(line)
    };
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().map_err(unreadable)?.clone();
    check_header(file, &header, family, columns).map_err(|invalid| invalid.in_line(1))?;

    let mut any = false;
    for record in reader.records() {
        let record = record.map_err(unreadable)?;
        let line = record.position().map_or(1, |position| position.line());
        if record.len() != header.len() {
            let must = format!("{} values", header.len());
            return Err(Invalid::new(file, "line", must, record.len().to_string()).in_line(line));
        }
        let cells = Record {
            family,
            header: &header,
            record: &record,
        };
        read(line, &cells).map_err(|(column, refused)| {
            let got = format!("{:?}", cells.text(column));
            Invalid::new(file, column, refused.must, got).suggest(refused.suggested).in_line(line)
        })?;
        any = true;
    }
    match any {
        true => Ok(()),
        // A family without points has no file: this one has lost them.
        false => Err(Invalid::new(
            file,
            "line",
            "at least one point",
            "none below the header",
        )),
    }
}

/// Columns may be in any order, but none may be missing, unknown or doubled; one that older profiles do not have has a
/// default.
fn check_header(file: &str, header: &StringRecord, family: Family, columns: &[&str]) -> Result<(), Invalid> {
    for column in header {
        if !columns.contains(&column) {
            let suggested = near_miss(column, columns.iter().copied());
            return Err(Invalid::new(file, "header", one_of(columns), format!("{column:?}")).suggest(suggested));
        }
    }
    check_repeated(file, header)?;
    let absent = |column: &&&str| header.iter().all(|have| have != **column) && family.default_of(column).is_none();
    match columns.iter().find(absent) {
        Some(column) => Err(Invalid::new(file, column, "a column", "no such column")),
        None => Ok(()),
    }
}

/// Refuses a column that stands there twice: which of the two is meant nobody can tell. Tables written with their row
/// numbers call those nothing.
pub(crate) fn check_repeated(file: &str, header: &StringRecord) -> Result<(), Invalid> {
    let mut named = header.iter().enumerate().filter(|(_, name)| !name.is_empty());
    match named.find(|(index, name)| header.iter().take(*index).any(|earlier| earlier == *name)) {
        Some((_, name)) => Err(Invalid::new(
            file,
            "header",
            "each column once",
            format!("{name:?} again"),
        )),
        None => Ok(()),
    }
}

/// One line of a file whose header is known to have every column without a default.
struct Record<'a> {
    family: Family,
    header: &'a StringRecord,
    record: &'a StringRecord,
}

impl Record<'_> {
    fn text(&self, column: &str) -> &str {
        match self.header.iter().position(|have| have == column) {
            Some(index) => self.record[index].trim(),
            None => self.family.default_of(column).expect("the header was checked"),
        }
    }
}

impl Cells for Record<'_> {
    fn cell<T: Field>(&self, column: &'static str) -> Result<T, RefusedIn> {
        T::read(self.text(column)).map_err(|refused| (column, refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_rows() {
        let mut families = Vec::new();
        for_each_family!(shared &Tables::default(), rows => families.push(family_of(rows)));
        assert_eq!(families, Family::ALL);
    }
}
