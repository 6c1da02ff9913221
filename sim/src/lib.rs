//! The virtual machine: prices operations from a profile and tells when they are done.
