//! Streams of operators on a CPU: threads, the first of them the caller's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tch::Tensor;

use super::batch::operate;
use super::kind::{Linear, Operators};
use crate::device::prepare_lane_thread;
use crate::error::ExecutorError;

/// One task's operators at one linear layer, over its own mini-batch.
#[derive(Debug)]
pub(crate) struct Job {
    pub operators: Arc<Mutex<Box<dyn Operators>>>,
    pub layer: usize,
    pub linear: Linear,
    /// Views of the batch's inputs and results.
    pub x: Tensor,
    pub y: Tensor,
}

impl Job {
    fn perform(&self) -> Result<(), ExecutorError> {
        let operators = self.operators.lock().expect("no operator panics");
        tch::no_grad(|| operate(&**operators, self.layer, self.linear, &self.x, &self.y))
    }
}

type Outcome = Result<Result<(), ExecutorError>, Box<dyn Any + Send>>;

/// Threads that a layer's PET operators run on side by side. On a GPU all of them issue to the device's one stream, so that one
/// is enough there.
#[derive(Debug)]
pub struct Streams {
    workers: Vec<Sender<Job>>,
    outcomes: Receiver<Outcome>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    /// The calling thread and `count - 1` others.
    ///
    /// # Errors
    /// No streams, or a system that has no more threads.
    pub fn new(count: u32) -> Result<Streams, ExecutorError> {
        if count == 0 {
            return Err(ExecutorError::input("streams", "at least 1", 0));
        }
        let (report, outcomes) = mpsc::channel();
        let mut streams = Streams {
            workers: Vec::new(),
            outcomes,
            threads: Vec::new(),
        };
        for stream in 1..count {
            let (sender, jobs) = mpsc::channel::<Job>();
            let report = report.clone();
            let worker = move || {
                prepare_lane_thread();
                // Ends when the streams are dropped.
                while let Ok(job) = jobs.recv() {
                    let outcome = catch_unwind(AssertUnwindSafe(|| job.perform()));
                    drop(job);
                    if report.send(outcome).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new()
                .name(format!("stream {stream}"))
                .spawn(worker);
            let thread =
                thread.map_err(|error| ExecutorError::input("streams", format!("at most {stream} here"), error))?;
            streams.threads.push(thread);
            streams.workers.push(sender);
        }
        Ok(streams)
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.workers.len() as u32 + 1
    }

    /// Does all jobs, each stream its own in their order, and returns when all are done.
    pub(crate) fn run(
        &self,
        jobs: impl Iterator<Item = Result<(u32, Job), ExecutorError>>,
    ) -> Result<(), ExecutorError> {
        let (mut own, mut handed_over, mut result) = (Vec::new(), 0, Ok(()));
        for job in jobs {
            match job {
                Ok((0, job)) => own.push(job),
                Ok((stream, job)) => {
                    let worker = &self.workers[stream as usize - 1];
                    worker.send(job).expect("a worker lives as long as its streams");
                    handed_over += 1;
                }
                Err(error) => result = Err(error),
            }
        }
        for job in own {
            result = result.and(job.perform());
        }
        // Even after an error: the others still write into the batch.
        for _ in 0..handed_over {
            match self.outcomes.recv().expect("a worker lives as long as its streams") {
                Ok(outcome) => result = result.and(outcome),
                Err(panic) => resume_unwind(panic),
            }
        }
        result
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.workers.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
