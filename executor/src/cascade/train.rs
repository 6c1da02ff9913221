//! Training a classifier: what makes the weights of a self-contained example.

use std::sync::atomic::AtomicBool;

use tch::{Device, Kind, Reduction, Tensor};
use tenantry_traces::draw::{Draws, Purpose};

use super::classifier::Classifier;
use super::items::Label;
use super::text::Tokens;
use crate::error::ExecutorError;

/// Adam's decay rates and epsilon (Kingma and Ba, ICLR 2015).
const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;
/// Gradients longer than this are shortened to it.
const GRADIENT_NORM_MAX: f64 = 1.0;
/// The part of all steps in which the learning rate rises; it falls in the others, both in a line, as BERT's does.
const WARM_UP: f64 = 0.1;

/// How a classifier is trained.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Training {
    /// How often each item is seen.
    pub epochs: u32,
    /// Items in a step.
    pub batch: usize,
    /// The highest learning rate.
    pub learning_rate: f64,
    /// The share by which weights shrink in a step, of the learning rate (Loshchilov and Hutter, ICLR 2019).
    pub weight_decay: f64,
    /// Of the order of items.
    pub seed: u64,
}

/// Trains all of a classifier's weights by AdamW, by cross-entropy or for a regression by the squared error; `watch` is
/// told of each epoch and its mean loss. Once `interrupt` is set it ends with the step.
///
/// # Errors
/// No items, tokens that the model does not have, no memory on the device, or an interruption.
///
/// # Panics
/// If a label is not of the head's kind.
pub fn train(
    classifier: &Classifier,
    items: &[(Tokens, Label)],
    training: &Training,
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(u32, f64),
) -> Result<(), ExecutorError> {
    if items.is_empty() || training.batch == 0 || training.epochs == 0 {
        return Err(ExecutorError::input(
            "training",
            "of some items, in some batches and epochs",
            "none",
        ));
    }
    let blocks = classifier.blocks();
    for piece in blocks.iter().flat_map(|(_, pieces)| pieces) {
        let _ = piece.set_requires_grad(true);
    }
    let mut optimizers = blocks.iter().map(|(block, _)| AdamW::new(block)).collect::<Result<Vec<_>, _>>()?;
    let trained = epochs(classifier, items, training, &mut optimizers, interrupt, watch);
    for piece in blocks.iter().flat_map(|(_, pieces)| pieces) {
        let _ = piece.set_requires_grad(false);
    }
    trained
}

fn epochs(
    classifier: &Classifier,
    items: &[(Tokens, Label)],
    training: &Training,
    optimizers: &mut [AdamW],
    interrupt: &AtomicBool,
    watch: &mut dyn FnMut(u32, f64),
) -> Result<(), ExecutorError> {
    let draws = Draws::new(training.seed, Purpose::Tokens);
    let steps = f64::from(training.epochs) * items.len().div_ceil(training.batch) as f64;
    let mut done = 0.0;
    for epoch in 0..training.epochs {
        let mut order: Vec<usize> = (0..items.len()).collect();
        let mut stream = draws.about(epoch.into());
        for last in (1..order.len()).rev() {
            order.swap(last, stream.below(last as u64 + 1) as usize);
        }
        let mut sum = 0.0;
        for chosen in order.chunks(training.batch) {
            ExecutorError::if_set(interrupt)?;
            let share = (done + 0.5) / steps;
            let rate = training.learning_rate * (share / WARM_UP).min((1.0 - share) / (1.0 - WARM_UP));
            let loss = loss(classifier, items, chosen)?;
            loss.f_backward()?;
            step(classifier, optimizers, rate, training.weight_decay)?;
            sum += loss.f_double_value(&[])? * chosen.len() as f64;
            done += 1.0;
        }
        watch(epoch, sum / items.len() as f64);
    }
    Ok(())
}

/// The mean loss of some items.
fn loss(classifier: &Classifier, items: &[(Tokens, Label)], chosen: &[usize]) -> Result<Tensor, ExecutorError> {
    let tokens: Vec<&Tokens> = chosen.iter().map(|&item| &items[item].0).collect();
    let logits = classifier.logits(&tokens)?;
    let (mut classes, mut numbers) = (Vec::new(), Vec::new());
    for &item in chosen {
        match items[item].1 {
            Label::Class(class) => classes.push(class as i64),
            Label::Number(number) => numbers.push(number),
        }
    }
    assert!(classes.is_empty() || numbers.is_empty(), "labels are of one kind");
    if numbers.is_empty() {
        let labels = Tensor::f_from_slice(&classes)?.f_to(classifier.device())?;
        return Ok(logits.f_cross_entropy_loss(&labels, None::<Tensor>, Reduction::Mean, -100, 0.0)?);
    }
    let labels = Tensor::f_from_slice(&numbers)?.f_to(classifier.device())?;
    Ok(logits.f_squeeze_dim(1)?.f_mse_loss(&labels, Reduction::Mean)?)
}

/// One step down the gradients, which are forgotten.
fn step(classifier: &Classifier, optimizers: &mut [AdamW], rate: f64, decay: f64) -> Result<(), ExecutorError> {
    tch::no_grad(|| {
        let mut gradients = Vec::new();
        for (_, pieces) in classifier.blocks() {
            let flat = pieces.iter().map(|piece| piece.f_grad()?.f_reshape([-1])).collect::<Result<Vec<_>, _>>()?;
            gradients.push(Tensor::f_cat(&flat, 0)?);
            for piece in pieces {
                let _ = piece.f_grad()?.f_zero_()?;
            }
        }
        let mut squares = Tensor::f_zeros([1], (Kind::Float, Device::Cpu))?;
        for gradient in &gradients {
            squares = squares.f_add(&gradient.f_square()?.f_sum(Kind::Float)?.f_to(Device::Cpu)?)?;
        }
        let norm = squares.f_double_value(&[0])?.sqrt();
        let scale = (GRADIENT_NORM_MAX / norm.max(f64::MIN_POSITIVE)).min(1.0);
        for ((optimizer, (block, _)), mut gradient) in optimizers.iter_mut().zip(classifier.blocks()).zip(gradients) {
            optimizer.step(block, &gradient.f_mul_scalar_(scale)?, rate, decay)?;
        }
        Ok(())
    })
}

/// AdamW over a flat block: a few operations, however many tensors it is made of.
struct AdamW {
    mean: Tensor,
    square: Tensor,
    steps: i32,
}

impl AdamW {
    fn new(block: &Tensor) -> Result<AdamW, ExecutorError> {
        Ok(AdamW {
            mean: block.f_zeros_like()?,
            square: block.f_zeros_like()?,
            steps: 0,
        })
    }

    fn step(&mut self, block: &Tensor, gradient: &Tensor, rate: f64, decay: f64) -> Result<(), ExecutorError> {
        self.steps += 1;
        let [first, second] = BETAS;
        let _ = self.mean.f_mul_scalar_(first)?.f_add_(&gradient.f_mul_scalar(1.0 - first)?)?;
        let _ = self.square.f_mul_scalar_(second)?.f_add_(&gradient.f_square()?.f_mul_scalar_(1.0 - second)?)?;
        let unbiased = |beta: f64| 1.0 - beta.powi(self.steps);
        let spread = self.square.f_div_scalar(unbiased(second))?.f_sqrt_()?.f_add_scalar_(EPSILON)?;
        let change = self.mean.f_div(&spread)?.f_mul_scalar_(rate / unbiased(first))?;
        let mut block = block.shallow_clone();
        let _ = block.f_mul_scalar_(1.0 - rate * decay)?.f_sub_(&change)?;
        Ok(())
    }
}
