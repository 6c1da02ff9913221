//! Forward passes of an encoder's instance.

use super::*;

/// Kernels of libtorch are chosen for sizes that are multiples of this.
const LENGTHS_BETWEEN: usize = 8;

/// A batch between the ops of its forward pass.
pub(super) struct UnderWay {
    pub input: Input,
    pub plan: Option<AdapterPlan>,
    /// Members in the order of their rows: those of one tenant next to each other.
    pub rows: Vec<usize>,
    pub hidden: Tensor,
}

/// Runs forward passes of one instance.
pub(super) struct ComputeLane {
    /// By request stream, of which most pools have one; empty where each tenant has its own.
    pub backbones: Vec<Encoder>,
    /// By request stream.
    pub heads: Vec<Heads>,
    /// Whose batch runs.
    pub stream: usize,
    /// By static runtime, where they are compiled, its length.
    pub to_compile: BTreeMap<RuntimeRef, usize>,
    /// Those that have been.
    pub compiled: BTreeMap<RuntimeRef, CompiledModel>,
    pub slots: Slots,
    /// Requests that are served at once, at most.
    pub largest_batch: u32,
    /// Whether requests are served alone, at any length.
    pub dynamic: bool,
    /// Whether passes begin with what was looked up.
    pub looks_up: bool,
    pub tokens: Draws,
    pub device: Device,
    pub bad_slots: BadSlots,
    pub answers: Arc<Mutex<Vec<Answer>>>,
    /// Where heads label tokens: in place of answers.
    pub tags: Option<Arc<Mutex<Vec<Tagged>>>>,
    pub under_way: Option<UnderWay>,
}

impl ComputeLane {
    fn encoder(&self, batch: &Batch) -> &Encoder {
        match (self.backbones.get(self.stream), &self.slots) {
            (Some(backbone), _) => backbone,
            // A batch on whole models is of one tenant.
            (None, Slots::Models(slots)) => slots.model(batch.members[0].slot),
            (None, _) => unreachable!("without a backbone each tenant has its own model"),
        }
    }

    pub(super) fn begin(&self, batch: &Batch, embed: bool) -> Result<UnderWay, ExecutorError> {
        let rows = rows(batch);
        let (input, hidden) = match embed {
            true => self.embed(batch, &rows)?,
            false => {
                let mut retrieved = batch.retrieved.lock().expect("no lane panics with it");
                let Retrieved::Staged(input, hidden) = std::mem::take(&mut *retrieved) else {
                    // What failed before has been told.
                    return Err(ExecutorError::input("representations", "on the device", "nothing"));
                };
                // The lane that copies made them, and would be given their memory again as soon as they are dropped.
                let own = Stream::current(self.device)?;
                own.keeps(&hidden)?;
                input.kept_by(own)?;
                (input, hidden)
            }
        };
        let slots = rows.iter().map(|&row| batch.members[row].slot);
        Ok(UnderWay {
            plan: self.plan(slots, input.tokens())?,
            input,
            rows,
            hidden,
        })
    }

    /// Which adapters each row uses, where tenants have such: those of these slots.
    fn plan(&self, slots: impl Iterator<Item = u32>, tokens: usize) -> Result<Option<AdapterPlan>, ExecutorError> {
        match &self.slots {
            Slots::Adapters(cache, implementation) => {
                let slots: Vec<u32> = slots.collect();
                cache.plan(&slots, tokens, *implementation).map(Some)
            }
            Slots::Models(_) | Slots::None => Ok(None),
        }
    }

    /// The adapters that a plan is of.
    fn adapters<'a>(&'a self, plan: &'a Option<AdapterPlan>) -> Option<Adapters<'a>> {
        match (&self.slots, plan) {
            (Slots::Adapters(cache, _), Some(plan)) => Some(Adapters::new(cache, plan)),
            _ => None,
        }
    }

    /// Draws the token ids of the batch.
    fn sequences(&self, batch: &Batch, rows: &[usize]) -> Vec<Vec<i64>> {
        let vocabulary = u64::from(self.encoder(batch).shape().vocabulary);
        let ids = |&row: &usize| ids_of(self.tokens, vocabulary, &batch.members[row]);
        rows.iter().map(ids).collect()
    }

    /// Draws them, and embeds them.
    fn embed(&self, batch: &Batch, rows: &[usize]) -> Result<(Input, Tensor), ExecutorError> {
        let encoder = self.encoder(batch);
        let sequences = self.sequences(batch, rows);
        let input = encoder.input(&sequences, batch.shape.tokens as usize)?;
        let hidden = encoder.embed(&input)?;
        Ok((input, hidden))
    }

    fn encode(&mut self, encode: &Encode, batch: &Batch) -> Result<(), ExecutorError> {
        let mut under_way = if encode.begin {
            self.begin(batch, encode.embed)?
        } else {
            self.under_way.take().ok_or_else(|| {
                // The op before it failed, and its members have been told.
                ExecutorError::input("forward pass", "begun by the batch's first op", "nothing under way")
            })?
        };
        let adapters = self.adapters(&under_way.plan);
        let encoder = self.encoder(batch);
        let hidden = encoder.layers(
            under_way.hidden,
            encode.layers.range(),
            &under_way.input,
            adapters.as_ref(),
        )?;
        if !encode.heads {
            under_way.hidden = hidden;
            self.under_way = Some(under_way);
            return Ok(());
        }
        let rows = &under_way.rows;
        let tenants = tenants(batch, rows);
        let heads = &self.heads[self.stream];
        let classes = match self.tags {
            None => likeliest(&heads.forward(&hidden, &tenants)?)?,
            Some(_) => likeliest(&heads.tag(&hidden, &tenants)?)?.f_view([-1])?,
        };
        // Reading the answer waits for the device.
        self.answer(batch, rows, &Vec::<i64>::try_from(&classes)?);
        Ok(())
    }

    /// A whole pass of a runtime that is compiled.
    fn infer(&mut self, runtime: RuntimeRef, tokens: usize, batch: &Batch) -> Result<(), ExecutorError> {
        let rows = rows(batch);
        let (sequences, tenants) = (self.sequences(batch, &rows), tenants(batch, &rows));
        let classes = match self.compiled.get_mut(&runtime) {
            Some(compiled) => compiled.run(&sequences, &tenants)?,
            None => self.compile(runtime, tokens)?.run(&sequences, &tenants)?,
        };
        self.answer(batch, &rows, &classes);
        Ok(())
    }

    /// Of a request at a time, as instances of runtimes take them.
    fn compile(&mut self, runtime: RuntimeRef, tokens: usize) -> Result<&mut CompiledModel, ExecutorError> {
        let stream = usize::from(runtime.stream);
        let (encoder, heads) = (&self.backbones[stream], &self.heads[stream]);
        let compiled = CompiledModel::new(encoder, heads, self.tags.is_some(), 1, tokens)?;
        compiled.uncaptured().into_iter().for_each(errors::note);
        Ok(self.compiled.entry(runtime).or_insert(compiled))
    }

    /// Tells the class of each of a batch's rows, or the labels of its tokens one after the other, padding included.
    /// Who has none that is finite fails.
    fn answer(&self, batch: &Batch, rows: &[usize], classes: &[i64]) {
        let Some(tags) = &self.tags else {
            return tell(
                batch,
                0,
                rows.iter().copied().zip(classes.iter().copied()),
                &self.answers,
            );
        };
        let width = classes.len() / rows.len();
        let own = |(&row, labels): (&usize, &[i64])| {
            let tokens = (batch.members[row].input_tokens as usize).min(width);
            (row, labels[..tokens].to_vec())
        };
        let (broken, finite): (Vec<_>, Vec<_>) = rows
            .iter()
            .zip(classes.chunks(width))
            .map(own)
            .partition(|(_, labels)| labels.contains(&NOT_FINITE));
        fail_unanswered(batch, broken.into_iter().map(|(row, _)| row));
        let tagged = finite.into_iter().map(|(row, labels)| Tagged {
            ticket: batch.members[row].ticket,
            labels: labels.into_iter().map(|label| label as u32).collect(),
        });
        tags.lock().expect("no lane panics with the list").extend(tagged);
    }

    /// Passes of each stream's model.
    fn warm_up(&self) -> Result<(), ExecutorError> {
        for (stream, heads) in self.heads.iter().enumerate() {
            let encoder = match (self.backbones.get(stream), &self.slots) {
                (Some(backbone), _) => backbone,
                (None, Slots::Models(slots)) => slots.model(0),
                (None, _) => break,
            };
            self.warm_up_model(encoder, heads)?;
        }
        Ok(())
    }

    /// A few passes of the longest inputs, and on a GPU of others.
    fn warm_up_model(&self, encoder: &Encoder, heads: &Heads) -> Result<(), ExecutorError> {
        let longest = encoder.shape().positions as usize;
        for (batch, tokens) in first_passes(self.device, self.largest_batch as usize, longest) {
            self.pass(encoder, heads, batch, tokens)?;
        }
        // A GPU's libtorch chooses kernels by length, which takes milliseconds: where each request has its own, it is
        // done with before the first.
        for tokens in (LENGTHS_BETWEEN..=longest)
            .step_by(LENGTHS_BETWEEN)
            .filter(|_| self.device.is_cuda() && self.dynamic)
        {
            self.pass(encoder, heads, 1, tokens)?;
        }
        Ok(())
    }

    /// A pass over nobody's requests, with the adapters of the first slot.
    fn pass(&self, encoder: &Encoder, heads: &Heads, batch: usize, tokens: usize) -> Result<(), ExecutorError> {
        let shape = encoder.shape();
        let (input, hidden) = match self.looks_up {
            false => {
                let input = encoder.input(&vec![vec![0_i64; tokens]; batch], tokens)?;
                let hidden = encoder.embed(&input)?;
                (input, hidden)
            }
            true => {
                let size = [batch as i64, tokens as i64, shape.hidden.into()];
                let input = Input::of_lengths(&vec![tokens; batch], tokens, encoder.kind(), self.device)?;
                (input, Tensor::f_zeros(size, (encoder.kind(), self.device))?)
            }
        };
        let plan = self.plan(std::iter::repeat_n(0, batch), tokens)?;
        let adapters = self.adapters(&plan);
        let layers = encoder.first_layer() as usize..shape.layers as usize;
        let hidden = encoder.layers(hidden, layers, &input, adapters.as_ref())?;
        drop(match self.tags {
            None => heads.forward(&hidden, &vec![0; batch])?,
            Some(_) => heads.tag(&hidden, &vec![0; batch])?,
        });
        Ok(())
    }

    /// Members that found their tenant in a slot whose load had failed in an earlier batch, or whose tenant's head
    /// could not be read.
    fn fail_missing(&self, batch: &Batch) {
        let bad = self.bad_slots.lock().expect("no lane panics with the list");
        let heads = &self.heads[self.stream];
        if bad.is_empty() && heads.missing().is_empty() {
            return;
        }
        let lacks = |member: &Member| bad.contains(&(batch.instance, member.slot)) || heads.lacks(member.tenant);
        fail_those(batch, FailureReason::LoadFailed, lacks);
    }
}

impl Perform for ComputeLane {
    fn device(&self) -> Device {
        self.device
    }

    /// The first passes of a process are slower: libtorch chooses its kernels and fills its allocator.
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        prepare_lane_thread();
        let mut done = self.warm_up();
        // Each whatever failed before: one that is left would be captured at its first request, while other lanes
        // issue.
        for (runtime, tokens) in self.to_compile.clone() {
            let compiled = self.compile(runtime, tokens).map(drop);
            done = done.and(compiled);
        }
        done?;
        crate::device::synchronize(self.device)
    }

    fn perform(&mut self, kind: &OpKind, batch: &Batch) {
        if let OpKind::Infer(infer) = kind {
            self.stream = usize::from(infer.runtime.stream);
        }
        self.fail_missing(batch);
        if is_lost(batch) {
            self.under_way = None;
            return;
        }
        let done = match kind {
            OpKind::Encode(encode) => self.encode(encode, batch),
            // A runtime is the whole model of its stream on a batch of its shape.
            OpKind::Infer(infer) => {
                let whole = Encode {
                    begin: true,
                    embed: true,
                    layers: Layers::all(self.backbones[self.stream].shape().layers),
                    heads: true,
                };
                match self.to_compile.get(&infer.runtime) {
                    Some(&tokens) => self.infer(infer.runtime, tokens, batch),
                    None => self.encode(&whole, batch),
                }
            }
            _ => unreachable!("a compute lane encodes"),
        };
        if let Err(error) = done {
            self.under_way = None;
            fail_all(batch, reason(&error, FailureReason::ComputeFailed));
        }
    }
}

/// Whose each of a batch's rows is.
fn tenants(batch: &Batch, rows: &[usize]) -> Vec<u32> {
    rows.iter().map(|&row| batch.members[row].tenant).collect()
}
