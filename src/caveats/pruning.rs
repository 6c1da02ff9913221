//! Words that are pruned in vain.

use tenantry_core::SystemSpec;
use tenantry_core::spec::Padding;

/// A sentence on the stages whose batches are as long with fewer words. What they lose of their accuracy by these they
/// lose all the same.
pub fn pruned_in_vain(system: &SystemSpec) -> Option<String> {
    let stages = &system.route.as_ref()?.stages;
    let mut in_vain = stages.windows(2).filter_map(|pair| {
        let prunes = pair[0].dispatch.is_some_and(|dispatch| dispatch.prune_alpha.is_some());
        match pair[1].pool.padding {
            Padding::To(tokens) if prunes => Some((&pair[1].pool.name, tokens)),
            Padding::To(_) | Padding::Longest => None,
        }
    });
    let (stage, tokens) = in_vain.next()?;
    Some(format!(
        "{}: words are pruned that {stage} need not read, and its batches are padded to {tokens} tokens all the same \
         (`padding`): that saves no time, and may cost accuracy. With `padding: longest` fewer words are shorter \
         batches.",
        system.name
    ))
}
