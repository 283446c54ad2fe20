//! Services: values that one part of an application provides and others require (CTX-18 to CTX-20).

use super::fiber::{Cleanup, Fiber, Registration};
use super::plugin::Plugin;
use super::{Context, Root};
use crate::error::{Code, Error, Result};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

struct Service {
    id: u64,
    value: Rc<dyn Any>,
    provider: Weak<Fiber>,
}

/// The services of a root.
#[derive(Default)]
pub struct ServiceTable {
    services: RefCell<HashMap<String, Service>>,
    next: Cell<u64>,
    plugins: RefCell<Vec<Weak<Plugin>>>,
}

impl ServiceTable {
    /// Identifies the active provider of a service; `None` while there is none.
    pub(super) fn provider(&self, name: &str) -> Option<u64> {
        let services = self.services.borrow();
        let service = services.get(name)?;
        service.provider.upgrade().filter(|fiber| fiber.is_active()).map(|_| service.id)
    }

    fn value(&self, name: &str) -> Option<Rc<dyn Any>> {
        self.provider(name)?;
        self.services.borrow().get(name).map(|service| service.value.clone())
    }

    pub(super) fn watch(&self, plugin: &Rc<Plugin>) {
        let mut plugins = self.plugins.borrow_mut();
        plugins.retain(|plugin| plugin.strong_count() > 0);
        plugins.push(Rc::downgrade(plugin));
    }

    /// Lets every plugin look at its requirements again.
    pub(super) fn changed(&self) {
        let plugins: Vec<_> = self.plugins.borrow().iter().filter_map(Weak::upgrade).collect();
        for plugin in plugins {
            plugin.requirements_changed();
        }
    }

    /// Hides a service at once (CTX-19).
    fn hide(&self, name: &str, id: u64) -> Option<Service> {
        let removed = {
            let mut services = self.services.borrow_mut();
            let own = services.get(name).is_some_and(|service| service.id == id);
            if own { services.remove(name) } else { None }
        };
        if removed.is_some() {
            self.changed();
        }
        removed
    }

    /// Waits until whoever required a hidden service has unloaded.
    async fn released(&self, removed: Option<Service>) {
        let Some(id) = removed.as_ref().map(|service| service.id) else { return };
        let plugins: Vec<_> = self.plugins.borrow().iter().filter_map(Weak::upgrade).collect();
        for plugin in plugins {
            plugin.released(id).await;
        }
        drop(removed);
    }

    /// Withdraws everything that a fiber provides, before the fiber loses anything of its own.
    pub(super) async fn withdraw_all(&self, fiber: &Rc<Fiber>) {
        let own: Vec<_> = {
            let services = self.services.borrow();
            let own = services
                .iter()
                .filter(|(_, service)| service.provider.upgrade().is_some_and(|provider| Rc::ptr_eq(&provider, fiber)));
            let mut own: Vec<_> = own.map(|(name, service)| (service.id, name.clone())).collect();
            own.sort_unstable();
            own
        };
        for (id, name) in own.into_iter().rev() {
            self.released(self.hide(&name, id)).await;
        }
    }
}

impl Context {
    /// Provides a service under a name that is free; it lives as long as this context, and is seen by others once the
    /// part that provides it is active (CTX-18).
    pub fn provide<T: 'static>(&self, name: &str, value: Rc<T>) -> Result<Registration> {
        self.fiber().check()?;
        let table = &self.root().services;
        if table.services.borrow().contains_key(name) {
            let message = format!("a service {name:?} is provided already; dispose that one first");
            return Err(Error::new(Code::DuplicateName, message).with("name", name));
        }
        let id = table.next.get();
        table.next.set(id + 1);
        let service = Service { id, value, provider: Rc::downgrade(self.fiber()) };
        table.services.borrow_mut().insert(name.to_owned(), service);
        table.changed();
        let (root, name): (Weak<Root>, String) = (Rc::downgrade(self.root()), name.to_owned());
        Ok(self.fiber().own(Cleanup::Async(Box::new(move || {
            let root = root.upgrade();
            let hidden = root.as_ref().and_then(|root| root.services.hide(&name, id));
            Box::pin(async move {
                if let Some(root) = root {
                    root.services.released(hidden).await;
                }
            })
        }))))
    }

    /// The service of that name and type, while its provider is active (CTX-20).
    pub fn get<T: 'static>(&self, name: &str) -> Option<Rc<T>> {
        self.root().services.value(name)?.downcast().ok()
    }
}
