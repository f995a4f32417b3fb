"""The fleet under a virtual clock: the very code that decides live, over engines that jump from event to event."""
