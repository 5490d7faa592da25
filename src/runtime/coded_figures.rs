//! How figures are written and read: PIDs as text, and reasons by their names.

/// A PID as text.
pub(super) mod pid {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::pid::Pid;

    pub(crate) fn serialize<S: Serializer>(pid: &Pid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(pid)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Pid, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Counts by reason. A reader leaves out reasons that it does not know.
pub(super) mod by_reason {
    use std::collections::{BTreeMap, HashMap};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::process::DeadLetterReason;

    pub(crate) fn serialize<S: Serializer>(counts: &HashMap<DeadLetterReason, u64>, to: S) -> Result<S::Ok, S::Error> {
        let named: BTreeMap<String, u64> = counts.iter().map(|(reason, count)| (reason.label(), *count)).collect();
        named.serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<HashMap<DeadLetterReason, u64>, D::Error> {
        let named = BTreeMap::<String, u64>::deserialize(from)?;
        let known = DeadLetterReason::ALL.iter();
        Ok(known.filter_map(|reason| Some((*reason, *named.get(&reason.label())?))).collect())
    }
}
