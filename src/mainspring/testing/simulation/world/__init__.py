"""The simulated world: `world` builds it and lets it suffer, heal and end. `process` is one process of it, `hosts` its
place on the event loop (`loop`), `clock` its time, `makeup` and `pace` its settings; `ending` reads the final state."""
