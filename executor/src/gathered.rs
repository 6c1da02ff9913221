//! How much gather + bmm copies together at a time, of adapters and of low-rank products.

use tch::Device;

/// Numbers that are copied together at a time at most; a long prompt is done in pieces. On a processor they stay in its
/// caches: with 32 MB at a time and more, 512 tokens of rank 64 took ten times as long.
const MAX: i64 = 1 << 26;
const MAX_CPU: i64 = 1 << 20;

/// Of so many rows, how many to copy the parameters of together, so many numbers for each.
pub(crate) fn gathered_at_once(device: Device, rows: i64, numbers: i64) -> i64 {
    let most = match device {
        Device::Cpu => MAX_CPU,
        _ => MAX,
    };
    (most / numbers).clamp(1, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompts_tokens_come_in_pieces() {
        // Adapters of bottleneck 64 in GPT-2 small.
        let (adapter, prompts) = (2 * 768 * 64 + 64 + 768, 8 * 1900);
        assert_eq!(gathered_at_once(Device::Cpu, prompts, adapter), 10);
        assert_eq!(gathered_at_once(Device::Cuda(0), prompts, adapter), 676);
        assert_eq!(gathered_at_once(Device::Cuda(0), 8, adapter), 8);
    }

    #[test]
    fn one_row_is_copied_however_large() {
        assert_eq!(gathered_at_once(Device::Cpu, 3, 1 << 30), 1);
    }
}
