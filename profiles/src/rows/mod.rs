//! One measured point of each op family: a row of its CSV file, and how rows are read and written.
//!
//! A family's columns are the names that pick one table of it (model, dtype …), then the dimensions that a lookup
//! interpolates over (batch, tokens …), then [`Stats`]. Each family is declared once, in the file of what it is of.

mod decoders;
mod encoders;
mod host;

pub use decoders::*;
pub use encoders::*;
pub use host::*;

use std::cmp::Ordering;

use crate::cells::{Cells, RefusedIn};
use crate::family::Family;
use crate::schema::Column;
use crate::stats::{STATS_COLUMNS, Stats};

/// A row of one family's table.
pub(crate) trait Row: Clone {
    const FAMILY: Family;
    /// The columns that pick one table of the family.
    const NAMES: &'static [&'static str];
    /// The dimensions that a lookup interpolates over.
    const AXES: &'static [&'static str];
    /// What a row of it is.
    const DESCRIPTION: &'static str;

    /// The form of [`NAMES`](Self::NAMES) and [`AXES`](Self::AXES), in order.
    fn keys() -> Vec<Column>;
    fn read(cells: &impl Cells) -> Result<Self, RefusedIn>;
    /// The cells of [`NAMES`](Self::NAMES), in order.
    fn names(&self) -> Vec<String>;
    /// The same row of a model that is called otherwise.
    fn of_model(&self, model: &str) -> Self;
    /// Whether all names are another's, told without writing them out.
    fn shares_table(&self, other: &Self) -> bool;
    /// The point on [`AXES`](Self::AXES), in order.
    fn at(&self) -> Vec<u64>;
    fn stats(&self) -> &Stats;
    fn stats_mut(&mut self) -> &mut Stats;
    /// The order of rows in a saved file: by name, then by each dimension.
    fn compare(&self, other: &Self) -> Ordering;

    /// The cell of a column of [`NAMES`](Self::NAMES), where the family has it.
    fn name(&self, column: &str) -> Option<String> {
        let place = Self::NAMES.iter().position(|name| *name == column)?;
        Some(self.names().swap_remove(place))
    }

    /// All columns, in order.
    fn columns() -> Vec<&'static str> {
        [Self::NAMES, Self::AXES, &STATS_COLUMNS].concat()
    }
}

/// Puts rows into the order of a saved file.
pub(crate) fn sort<R: Row>(rows: &mut [R]) {
    let order = sorted(rows.len(), &|a, b| rows[a].compare(&rows[b]));
    let in_order: Vec<R> = order.iter().map(|&place| rows[place].clone()).collect();
    rows.clone_from_slice(&in_order);
}

/// The places of so many rows in their order.
// Not generic: there are many kinds of rows, and a sort would be compiled for each.
fn sorted(rows: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rows).collect();
    order.sort_by(|a, b| compare(*a, *b));
    order
}

macro_rules! family {
    (
        $(#[doc = $doc:literal])* $row:ident: $family:ident,
        names { $($(#[doc = $name_doc:literal])* $name:ident: $name_type:ty),* $(,)? },
        axes { $($(#[doc = $axis_doc:literal])* $axis:ident: $axis_type:ty),* $(,)? }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $row {
            $($(#[doc = $name_doc])* pub $name: $name_type,)*
            $($(#[doc = $axis_doc])* pub $axis: $axis_type,)*
            /// What was measured there.
            pub stats: Stats,
        }

        impl Row for $row {
            const FAMILY: Family = Family::$family;
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
            const AXES: &'static [&'static str] = &[$(stringify!($axis)),*];
            const DESCRIPTION: &'static str = concat!($($doc),*);

            fn keys() -> Vec<Column> {
                vec![
                    $(Column::of::<$name_type>(stringify!($name), concat!($($name_doc),*)),)*
                    $(Column::of::<$axis_type>(stringify!($axis), concat!($($axis_doc),*)),)*
                ]
            }

            fn read(cells: &impl Cells) -> Result<Self, RefusedIn> {
                Ok($row {
                    $($name: cells.cell(stringify!($name))?,)*
                    $($axis: cells.cell(stringify!($axis))?,)*
                    stats: Stats::read(cells)?,
                })
            }

            fn names(&self) -> Vec<String> {
                vec![$(self.$name.write()),*]
            }

            fn of_model(&self, _model: &str) -> Self {
                #[allow(unused_mut, reason = "some families have no names")]
                let mut row = self.clone();
                $(row.$name.rename(_model);)*
                row
            }

            fn shares_table(&self, _other: &Self) -> bool {
                true $(&& self.$name == _other.$name)*
            }

            fn at(&self) -> Vec<u64> {
                vec![$(u64::from(self.$axis)),*]
            }

            fn stats(&self) -> &Stats {
                &self.stats
            }

            fn stats_mut(&mut self) -> &mut Stats {
                &mut self.stats
            }

            fn compare(&self, other: &Self) -> Ordering {
                Ordering::Equal
                    $(.then_with(|| self.$name.cmp(&other.$name)))*
                    $(.then_with(|| self.$axis.cmp(&other.$axis)))*
            }
        }
    };
}

use family;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::synthetic_card;

    #[test]
    fn rows_come_into_their_order_from_any_other() {
        let mut in_order = synthetic_card().tables.encoder_layer;
        in_order.sort_by(Row::compare);
        let rows = in_order.len();
        // Steps that share no factor with the number of rows meet each row once.
        let steps = (1..rows).filter(|step| !(2..=*step).any(|by| step.is_multiple_of(by) && rows.is_multiple_of(by)));
        let mut orders = 0;
        for step in steps {
            let mut mixed: Vec<EncoderLayerRow> = (0..rows).map(|at| in_order[at * step % rows].clone()).collect();
            sort(&mut mixed);
            assert_eq!(mixed, in_order, "in steps of {step}");
            orders += 1;
        }
        assert!(orders > 5, "{orders} orders of {rows} rows");
    }
}
