//! Binds a card's tables to surfaces, once per run.

mod decoders;
mod encoders;
mod host;

pub(crate) use host::{PLANNING_HOST, SOLVING_HOST};

use std::collections::BTreeSet;

use crate::beyond::{Operations, carried_on};
use crate::card::{Card, DeviceKind};
use crate::error::MissingTable;
use crate::family::Family;
use crate::grid::Grid;
use crate::model::ModelShape;
use crate::rows::Row;
use crate::slice::{DTYPE, MODEL, Missing, Slice, dtype_of, model_of, slice, slices};

/// What stands between the tables of a list.
const BETWEEN_TABLES: &str = ", ";

/// Whose rows are of a whole model, of which the number of layers counts.
const WHOLE_MODELS: [Family; 3] = [Family::StaticModel, Family::ConcurrentModel, Family::TextPass];

impl Card {
    /// The grid of the table whose label is `asked`.
    fn grid<R: Row, const N: usize>(&self, rows: &[R], asked: &str) -> Result<Grid<N>, MissingTable> {
        self.gridded(rows, asked, Grid::new)
    }

    /// The same of a table that a card need not have.
    fn grid_if_there<R: Row, const N: usize>(&self, rows: &[R], asked: &str) -> Result<Option<Grid<N>>, MissingTable> {
        is_there(rows, asked).then(|| self.grid(rows, asked)).transpose()
    }

    /// The same of an op whose operations do not grow in proportion: beyond what was measured it goes on by them.
    fn grid_by<R: Row, const N: usize>(
        &self,
        rows: &[R],
        asked: &str,
        operations: &impl Operations,
    ) -> Result<Grid<N>, MissingTable> {
        self.gridded(rows, asked, |slice| {
            // Points that follow a hole would be told of in its place.
            if let Some(missing) = slice.missing() {
                return Err(missing);
            }
            let knots = slice.knots();
            let measured = Grid::new(&carried_on(slice, operations))?;
            Ok(measured.measured_up_to(std::array::from_fn(|axis| {
                *knots[axis].last().expect("a table has points")
            })))
        })
    }

    /// The error of `build` is the points that nobody measured.
    fn gridded<R: Row, const N: usize>(
        &self,
        rows: &[R],
        asked: &str,
        build: impl FnOnce(&Slice) -> Result<Grid<N>, Missing>,
    ) -> Result<Grid<N>, MissingTable> {
        let Some(slice) = slice(rows, asked) else {
            return Err(self.missing(R::FAMILY, asked, found(&slices(rows))));
        };
        self.origins.note(R::FAMILY, asked);
        build(&slice).map_err(|missing| {
            let found = format!(
                "no row for {} ({} missing in all)",
                slice.describe(&missing.first),
                missing.how_many()
            );
            self.missing(R::FAMILY, asked, found)
        })
    }

    /// A model's tables are no use to another of the same name.
    fn check_shape(&self, family: Family, model: &ModelShape, asked: &str) -> Result<(), MissingTable> {
        let Some(measured) = self.model(&model.name) else {
            return Ok(());
        };
        if are_of(family, &measured, model) {
            return Ok(());
        }
        let found = format!("those of another model of that name ({})", measured.differences(model));
        Err(self.missing(family, asked, found))
    }

    fn missing(&self, family: Family, asked: &str, found: String) -> MissingTable {
        let device = match self.device.kind {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda:0",
        };
        let model = model_of(asked);
        let models = model.map(|name| format!(" --models {name}")).unwrap_or_default();
        // Nobody need have a card that was derived, and what its datasheet gives it has got.
        let is_derived = self.provenance.command.starts_with("tenantry profile derive --datasheet ");
        MissingTable {
            card: self.name.clone(),
            family,
            asked: match asked {
                "" => "rows".to_owned(),
                asked => asked.to_owned(),
            },
            command: (!is_derived).then(|| format!("tenantry profile --device {device}{models}")),
            other_formats: self.other_formats(asked, &found),
            found: found.into(),
        }
    }

    /// The number formats in which the card has what is asked for, of the model itself or of one with such layers.
    fn other_formats(&self, asked: &str, found: &str) -> Box<[String]> {
        let (Some(model), Some(dtype)) = (model_of(asked), dtype_of(asked)) else {
            return Box::default();
        };
        let shape = self.model(model);
        let are_alike = |other: &str| {
            let other = self.model(other);
            shape.as_ref().zip(other).is_some_and(|(shape, other)| other.has_layers_of(shape))
        };
        let formats = found.split(BETWEEN_TABLES).filter_map(|label| {
            let (other, format) = (model_of(label)?, dtype_of(label)?);
            let of_asked = label
                .replace(&format!("{MODEL}{other} "), &format!("{MODEL}{model} "))
                .replace(&format!("{DTYPE}{format}"), &format!("{DTYPE}{dtype}"));
            (of_asked == asked && (other == model || are_alike(other))).then(|| format.to_owned())
        });
        formats.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Whether a family's costs of one model are another's too: the number of layers may differ where costs are per layer.
pub(crate) fn are_of(family: Family, measured: &ModelShape, model: &ModelShape) -> bool {
    let layers = match WHOLE_MODELS.contains(&family) {
        true => measured.layers,
        false => model.layers,
    };
    *model
        == ModelShape {
            layers,
            ..measured.clone()
        }
}

fn found(slices: &[Slice]) -> String {
    match slices {
        [] => "no table".to_string(),
        _ => slices.iter().map(|slice| slice.label.as_str()).collect::<Vec<_>>().join(BETWEEN_TABLES),
    }
}

/// Whether there is such a table.
fn is_there<R: Row>(rows: &[R], asked: &str) -> bool {
    slice(rows, asked).is_some()
}
