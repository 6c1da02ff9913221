//! A kind of task that only these tests know.

use super::*;

/// A kind that only this test knows: one scale for all of a linear layer's results (as in IA³, in little).
#[derive(Debug)]
struct Scale;

#[derive(Debug)]
struct ScaleBy(f64);

impl Kind for Scale {
    fn name(&self) -> &'static str {
        "scale"
    }

    fn check(&self, parameters: &Reader<'_>, _: &ModelShape) -> Result<Resident, Misfit> {
        parameters.array("scale", safetensors::Dtype::F32, &[Some(1)])?;
        Ok(Resident::default())
    }

    fn load(&self, parameters: &Reader<'_>, _: &Encoder) -> Result<Box<dyn Operators>, ExecutorError> {
        Ok(Box::new(ScaleBy(parameters.host_tensor("scale")?.double_value(&[0]))))
    }

    fn random(&self, _: &ModelShape, _: &PetSizes, _: u64, _: u32) -> Parameters {
        let mut parameters = Parameters::default();
        parameters.insert("scale", Array::floats(&[1], &[1.5]));
        parameters
    }
}

impl Operators for ScaleBy {
    fn delta(&self, _: usize, _: Linear, _: &Tensor, y: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
        Ok(Some(y * (self.0 - 1.0)))
    }

    fn has_delta(&self, _: usize, linear: Linear) -> bool {
        linear == Linear::Output
    }
}

#[test]
fn a_new_kind_is_one_implementation() {
    static WITH_SCALE: [&dyn Kind; 1] = [&Scale];
    let mut registry = Registry::new(&WITH_SCALE, u64::MAX);
    registry.add_model("small", encoder("small")).unwrap();
    registry.register(0, "small", "scale", Scale.random(&shape("small"), &SIZES, 0, 0)).unwrap();
    registry.load(0).unwrap();
    let ids = vec![vec![3, 1, 4]];
    let found = together(&registry, "small", &[(0, ids.clone())], &[0], &Streams::new(1).unwrap());

    let scaled = Encoder::from_parameters(&shape("small"), encoder("small").parameters().copy()).unwrap();
    for layer in 0..2 {
        let output = &scaled.layer_parts(layer).output;
        let (mut weight, mut bias) = (output.weight.shallow_clone(), output.bias.shallow_clone());
        weight *= 1.5;
        bias *= 1.5;
    }
    let input = scaled.input(&ids, 3).unwrap();
    let expected = scaled.layers(scaled.embed(&input).unwrap(), 0..2, &input, None).unwrap();
    assert!(difference(&found, &expected) < 2e-5);

    // It does not say what to add to the weights, nor that there is no such thing.
    assert_eq!(
        registry.own_model(0, FineTuned::ByKind, Device::Cpu).unwrap_err().to_string(),
        "operator at output of layer 0: must be a matrix, since its kind merges, got none"
    );
}

#[test]
fn a_stream_that_fails_is_told_and_the_others_end() {
    #[derive(Debug)]
    struct Fails;
    impl Operators for Fails {
        fn delta(&self, _: usize, _: Linear, _: &Tensor, _: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
            Err(ExecutorError::input("operator", "one that works", "one that fails"))
        }
        fn has_delta(&self, _: usize, _: Linear) -> bool {
            true
        }
    }
    let job = |operators: Box<dyn Operators>, y: &Tensor| streams::Job {
        operators: LoadedOperators::new(operators),
        layer: 0,
        linear: Linear::Output,
        x: Tensor::zeros([1, 2, 3], (Number::Float, Device::Cpu)),
        y: y.shallow_clone(),
    };
    let streams = Streams::new(3).unwrap();
    let y = Tensor::ones([1, 2, 3], (Number::Float, Device::Cpu));
    let jobs = [
        (1, job(Box::new(Fails), &y)),
        (2, job(Box::new(ScaleBy(2.0)), &y)),
        (0, job(Box::new(Fails), &y)),
    ];
    // `ScaleBy` works on the output layer, where these jobs are.
    let failed = streams.run(jobs.into_iter().map(Ok)).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "operator: must be one that works, got one that fails"
    );
    assert_eq!(y.sum(Number::Float).double_value(&[]), 12.0);
    // And they serve the next batch.
    streams.run([(2, job(Box::new(ScaleBy(2.0)), &y))].into_iter().map(Ok)).unwrap();
    assert_eq!(y.sum(Number::Float).double_value(&[]), 24.0);
    assert_eq!(
        Streams::new(0).unwrap_err().to_string(),
        "streams: must be at least 1, got 0"
    );
}

/// Each waits in its operator until the other is in it too.
#[test]
fn mini_batches_of_one_task_are_computed_at_the_same_time() {
    #[derive(Debug, Default)]
    struct Meets {
        inside: std::sync::Mutex<u32>,
        came: std::sync::Condvar,
    }
    impl Operators for Meets {
        fn delta(&self, _: usize, _: Linear, _: &Tensor, y: &Tensor) -> Result<Option<Tensor>, ExecutorError> {
            let mut inside = self.inside.lock().unwrap();
            *inside += 1;
            self.came.notify_all();
            let limit = std::time::Duration::from_secs(30);
            let (_inside, waited) = self.came.wait_timeout_while(inside, limit, |inside| *inside < 2).unwrap();
            assert!(!waited.timed_out(), "nobody else came");
            Ok(Some(y.ones_like()))
        }
        fn has_delta(&self, _: usize, _: Linear) -> bool {
            true
        }
    }
    let operators = LoadedOperators::new(Box::new(Meets::default()));
    let y = Tensor::zeros([2, 2, 3], (Number::Float, Device::Cpu));
    let job = |row: u32| {
        let job = streams::Job {
            operators: operators.clone(),
            layer: 0,
            linear: Linear::Output,
            x: y.narrow(0, row.into(), 1),
            y: y.narrow(0, row.into(), 1),
        };
        Ok((row, job))
    };
    Streams::new(2).unwrap().run([0, 1].into_iter().map(job)).unwrap();
    assert_eq!(y.sum(Number::Float).double_value(&[]), 12.0);
}
