//! Execution: tasks that carry out calls, one step at a time.
//!
//! `collective` is the task of one collective call of one rank; it takes one of three roads. `eager`: the payload
//! travels in the line that announces the call (`at_once`: carried out without a task, `known`: as the last one of its
//! shape (`by_shape`), `again_v`: an AlltoAllv as the last one, `pair_v`: that of two ranks, `streak`: several of a group together, `fused`: many of a group in one line and slot, `trail`: begun before those in front of them have ended, `eager_lent`: reductions, broadcasts and scatters whose inputs are lent in place of going into slots, `run`: whether calls are waited for). `direct`: a
//! direct program over mapped memory, or over memory that the kernel copies (`far`; `lent`: where some ranks only lend theirs); payloads of medium size may lie
//! `beside` the line (of calls that are `apart` mapped ones, too), what moves one way between two ranks goes `piped` through a ring (`pieces`: whose places change hands), blocks of a gather in slots (`slotted`),
//! what all give to all through `scratch`, what peers cannot map from where it was copied to (`stage`), and
//! calls of medium size are carried out without a task (`at_once_direct`; `again_direct`: as the
//! last one of its shape was, `resolved` to what it reads and writes where; `ends`: whose end is left to the next one). `messages`: a message program over connections. `ahead`: begun before those in front of them have
//! ended. `p2p` is the task of a group of sends and
//! receives (`p2p_quick`, `p2p_short`: small and medium ones without a task, `p2p_outgrown`: which the kernel copies, `p2p_step`: how they go on), `one_sided` that of puts, signals and waits for signals; what both
//! do alike is in `operation`. `limits`: up to which length a payload travels with its line. An executor knows no algorithm.

mod again_direct;
pub(crate) mod again_v;
pub(crate) mod ahead;
mod apart;
pub(crate) mod at_once;
mod at_once_direct;
mod awaited;
mod beside;
mod by_shape;
pub(crate) mod call;
pub(crate) mod collective;
mod copies;
mod direct;
mod eager;
mod eager_lent;
mod eager_v;
pub(crate) mod ends;
pub(crate) mod entry;
pub(crate) mod estimate;
mod far;
pub(crate) mod fused;
pub(crate) mod imports;
mod known;
mod lent;
mod lent_v;
pub(crate) mod limits;
pub(crate) mod links;
mod messages;
pub(crate) mod one_sided;
mod operation;
pub(crate) mod p2p;
pub(crate) mod p2p_behind;
mod p2p_outgrown;
mod p2p_own;
mod p2p_passed;
pub(crate) mod p2p_quick;
mod p2p_short;
mod p2p_step;
mod pair_v;
mod pieces;
pub(crate) mod piped;
pub(crate) mod plan;
mod resolved;
mod run;
mod scratch;
mod slotted;
pub(crate) mod stage;
pub(crate) mod streak;
pub(crate) mod taken;
mod trail;
mod votes;
pub(crate) mod wait;
mod written;
