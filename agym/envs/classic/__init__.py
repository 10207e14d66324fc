"""Gymnasium's classic control as rule books: CartPole, Acrobot, both MountainCars and Pendulum."""
