//! Parameter-efficient tasks as whoever plans, prices and checks them without computing sees them (PetS, section 3 and
//! Fig. 3): what each kind's file holds, what it weighs on the device, and what its operators do.

pub mod header;
mod kinds;
pub mod tensors;
pub mod work;
