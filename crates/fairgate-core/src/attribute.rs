//! Who a request belongs to: the seven attributes by which a node of the policy tree may share.

/// An attribute of a request that a policy node can share by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Attribute {
    /// The policy class.
    Class,
    /// The tenant.
    Tenant,
    /// The tenant's group.
    Group,
    /// The API key.
    Key,
    /// The agent inside a program.
    Agent,
    /// The project.
    Project,
    /// The session or conversation.
    Session,
}

impl Attribute {
    /// All attributes, in the order in which they are numbered.
    pub const ALL: [Self; 7] = [
        Self::Class,
        Self::Tenant,
        Self::Group,
        Self::Key,
        Self::Agent,
        Self::Project,
        Self::Session,
    ];

    /// The name by which journals and policies call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Tenant => "tenant",
            Self::Group => "group",
            Self::Key => "key",
            Self::Agent => "agent",
            Self::Project => "project",
            Self::Session => "session",
        }
    }

    /// The attribute of that name, or `None` where no attribute is called so.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }
}

/// The attributes of one request. What is absent falls into the flow named [`DEFAULT_FLOW`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes([Option<Box<str>>; 7]);

/// The flow of requests that lack the attribute a node shares by.
pub const DEFAULT_FLOW: &str = "default";

impl Attributes {
    /// No attributes at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// These attributes with one more set.
    pub fn with(mut self, attribute: Attribute, value: &str) -> Self {
        self.set(attribute, value.into());
        self
    }

    /// Sets one attribute.
    pub fn set(&mut self, attribute: Attribute, value: Box<str>) {
        self.0[attribute as usize] = Some(value);
    }

    /// The value of one attribute, where it was given.
    pub fn get(&self, attribute: Attribute) -> Option<&str> {
        self.0[attribute as usize].as_deref()
    }
}
