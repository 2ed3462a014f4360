"""Software stacks: how they are declared, made and launched."""
