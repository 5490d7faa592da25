//! The endpoints of a node over zenoh, and how they are secured.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// How the connections of a node are secured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Security {
    /// The connections are not protected. Each program that can reach an endpoint of the node can send messages in the
    /// name of any node. It can also read and change the messages of others, and take the memory and the time of a node
    /// by announcing nodes without end. Use this only on a network on which all programs and all machines are trusted.
    TrustedNetwork,
    /// Each node has a certificate. Endpoints are `quic/`.
    Certificates(Certificates),
}

/// The certificates of a node.
///
/// The authority of the cluster signs the certificate of each node. The common name of a certificate is the name of its
/// node. It does not name a cluster, so use a separate authority for each cluster.
///
/// A node takes no frames from a program in any of these cases:
///
/// - The program has no certificate, or one of another authority.
/// - Its certificate has expired.
/// - The common name of its certificate is not the name of the node that it claims to be.
///
/// A node with a valid certificate is trusted. It can send any message of the [`Wire`](super::Wire) to any process.
///
/// ```
/// use procession::cluster::{Certificates, Security};
///
/// let certificates = Certificates::new("authority.pem", "a.pem", "a.key").nodes(["a", "b", "c"]);
/// let security = Security::Certificates(certificates);
/// # let _ = security;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "certificates do nothing until a node has them"]
pub struct Certificates {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    pub(super) nodes: Vec<String>,
}

impl Certificates {
    /// Names the three PEM files: the certificate of the authority, the certificate of the node, and its private key.
    ///
    /// The files are opened by [`ClusterBuilder::start`](super::ClusterBuilder::start).
    pub fn new(
        authority: impl Into<PathBuf>,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Certificates {
        let (authority, certificate, key) = (authority.into(), certificate.into(), key.into());
        Certificates { authority, certificate, key, nodes: Vec::new() }
    }

    /// Adds the names of the nodes that may connect. A node that is not in this list is refused, even if its
    /// certificate is valid.
    ///
    /// The name of this node is not needed, but does no harm. So all nodes can have the same list.
    pub fn nodes(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Certificates {
        self.nodes.extend(names.into_iter().map(Into::into));
        self
    }

    /// The files.
    pub(super) fn files(&self) -> [&Path; 3] {
        [&self.authority, &self.certificate, &self.key]
    }

    /// The settings of the engine for the transport.
    pub(super) fn transport(&self) -> Value {
        json!({
            "root_ca_certificate": self.authority,
            "listen_certificate": self.certificate,
            "listen_private_key": self.key,
            "connect_certificate": self.certificate,
            "connect_private_key": self.key,
            "enable_mtls": true,
            // A certificate has the name of a node, and not that of a machine. The access control looks at it.
            "verify_name_on_connect": false,
            "close_link_on_expiration": true,
        })
    }

    /// The settings of zenoh for the access control. A node may publish, subscribe and declare tokens only under its
    /// name.
    pub(super) fn access_control(&self) -> Value {
        let subjects = self.nodes.iter().map(|name| json!({ "id": name, "cert_common_names": [name] }));
        let rule = |id: String, messages: &[&str], keys: [String; 1]| {
            json!({
                "id": id,
                "permission": "allow",
                "flows": ["ingress"],
                "messages": messages,
                "key_exprs": keys,
            })
        };
        let of_all = json!({
            "id": "all",
            "permission": "allow",
            "flows": ["egress"],
            "messages": MESSAGES,
            "key_exprs": ["procession/**"],
        });
        let looks = rule(
            "looks".into(),
            &["liveliness_query", "declare_liveliness_subscriber"],
            ["procession/alive/**".into()],
        );
        let of_each = self.nodes.iter().flat_map(|name| {
            [
                rule(format!("sends/{name}"), &["put"], [format!("procession/to/**/{name}")]),
                rule(format!("takes/{name}"), &["declare_subscriber"], [format!("procession/to/**/{name}/*")]),
                rule(format!("lives/{name}"), &["liveliness_token"], [format!("procession/alive/**/{name}/*")]),
            ]
        });
        let rules: Vec<Value> = [of_all, looks].into_iter().chain(of_each).collect();
        let policies = self.nodes.iter().map(|name| {
            let own = ["sends", "takes", "lives"].map(|rule| format!("{rule}/{name}"));
            let rules: Vec<String> = ["all".into(), "looks".into()].into_iter().chain(own).collect();
            json!({ "rules": rules, "subjects": [name] })
        });
        json!({
            "enabled": true,
            "default_permission": "deny",
            "subjects": subjects.collect::<Vec<_>>(),
            "rules": rules,
            "policies": policies.collect::<Vec<_>>(),
        })
    }
}

/// All messages that nodes exchange.
const MESSAGES: [&str; 5] =
    ["put", "declare_subscriber", "liveliness_token", "liveliness_query", "declare_liveliness_subscriber"];

/// The endpoints of a node: its own, and those of other nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endpoints {
    pub(crate) listen: Vec<String>,
    pub(crate) join: Vec<String>,
    pub(crate) security: Option<Security>,
}

impl Endpoints {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.listen.is_empty() && self.join.is_empty()
    }

    /// The certificates of the node, if it has some.
    pub(super) fn certificates(&self) -> Option<&Certificates> {
        match &self.security {
            Some(Security::Certificates(certificates)) => Some(certificates),
            _ => None,
        }
    }

    /// The first endpoint that cannot be used, and the reason.
    pub(super) fn problem(&self) -> Option<(String, &'static str)> {
        let problem = |endpoint: &String| {
            let why = match (endpoint.split_once('/').map_or("", |(protocol, _)| protocol), &self.security) {
                ("tcp", Some(Security::TrustedNetwork)) | ("quic", Some(Security::Certificates(_))) => return None,
                ("tcp", _) => "it has no protection, so it needs `Security::TrustedNetwork`",
                ("quic", _) => "it needs `Security::Certificates`",
                ("tls", _) => "use `quic/`, which has the same certificates",
                _ => "use `quic/` with certificates, or `tcp/` in a trusted network",
            };
            Some((endpoint.clone(), why))
        };
        self.listen.iter().chain(&self.join).find_map(problem)
    }
}
