//! The policy core: events in, commands out, and the one loop that drives any machine.
