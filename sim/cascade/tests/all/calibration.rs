//! Fits against a search by brute force, and the laws of calibration.

use proptest::prelude::*;
use tenantry_cascade::{Temperature, softmax};

fn items() -> impl Strategy<Value = Vec<(Vec<f32>, usize)>> {
    let item = (prop::collection::vec(-4.0..4.0_f32, 3), 0..3_usize);
    prop::collection::vec(item, 2..40)
}

proptest! {
    /// No temperature of a fine grid is likelier than the fitted one.
    #[test]
    fn the_fit_is_the_minimum(items in items()) {
        let borrowed = || items.iter().map(|(logits, label)| (logits.as_slice(), *label)).collect::<Vec<_>>();
        let fitted = Temperature::fit(borrowed()).unwrap();
        let least = fitted.loss(borrowed()).unwrap();
        for step in -46..=46 {
            let other = Temperature::new(libm::exp(f64::from(step) / 10.0)).unwrap();
            prop_assert!(least <= other.loss(borrowed()).unwrap() + 1e-9, "{other:?} is likelier than {fitted:?}");
        }
    }

    /// A temperature changes confidence and never the answer.
    #[test]
    fn the_answer_stays(logits in prop::collection::vec(-9.0..9.0_f32, 1..8), t in 0.05..20.0_f64) {
        let temperature = Temperature::new(t).unwrap();
        let (cold, warm) = (Temperature::ONE.confidence(&logits), temperature.confidence(&logits));
        let most = logits.iter().copied().fold(f32::MIN, f32::max);
        prop_assert_eq!(logits[warm.class], most);
        prop_assert_eq!(logits[cold.class], most);
        prop_assert!((softmax(&logits, temperature).iter().sum::<f64>() - 1.0).abs() < 1e-9);
        if t > 1.0 {
            prop_assert!(warm.confidence <= cold.confidence + 1e-12);
        }
    }
}
