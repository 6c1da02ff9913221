//! Whether libtorch's grouped product can be used on a device, for certain shapes.

use tenantry_profiles::AdapterImplementation;

use crate::error::{ExecutorError, first_line};

/// What trying it out once has told.
#[derive(Clone, Debug)]
pub(crate) struct GroupedProduct {
    /// Why it cannot be used, if it cannot.
    fails: Option<String>,
}

impl GroupedProduct {
    /// `tried` is what came of it.
    pub fn tried(tried: Result<(), ExecutorError>) -> GroupedProduct {
        GroupedProduct {
            fails: tried.err().map(|error| match error {
                ExecutorError::Torch(error) => first_line(&error),
                other => other.to_string(),
            }),
        }
    }

    /// For trying it out with parameters of zero, which must change nothing. `difference` is what they changed.
    ///
    /// # Errors
    /// They changed something; `must` says what was expected.
    pub fn must_change_nothing(difference: f64, must: &str) -> Result<(), ExecutorError> {
        if difference == 0.0 {
            return Ok(());
        }
        Err(ExecutorError::input(
            "libtorch's grouped product",
            must,
            format!("off by {difference}"),
        ))
    }

    /// # Errors
    /// An implementation that this device does not have.
    pub fn check(&self, implementation: AdapterImplementation) -> Result<(), ExecutorError> {
        match &self.fails {
            Some(reason) if implementation == AdapterImplementation::Grouped => Err(ExecutorError::Unavailable {
                implementation,
                reason: reason.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Implementations that work.
    pub fn implementations(&self) -> Vec<AdapterImplementation> {
        let works = |implementation: &AdapterImplementation| self.check(*implementation).is_ok();
        AdapterImplementation::ALL.iter().copied().filter(works).collect()
    }

    /// Why it cannot be used, if it cannot.
    pub fn fails(&self) -> Option<&str> {
        self.fails.as_deref()
    }
}
